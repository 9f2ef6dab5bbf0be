//! The streamed kernels write anew, step by step, what upstream's helpers and one-row kernels do. That
//! they give the same bits is proven elsewhere; this tells at once which upstream text another pin changed.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use proofs::Prefix;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::canary::BLESS;

/// A header of upstream's, and the one that follows it.
struct Followed {
    header: &'static str,
    follower: &'static str,
    /// Names, and the text that their definitions begin with.
    definitions: &'static [(&'static str, &'static str)],
}

const FOLLOWED: [Followed; 2] = [
    Followed {
        header: "quantized.h",
        follower: "qmv_streamed.h",
        definitions: &[
            ("load_vector", "inline U load_vector("),
            ("qdot", "inline U qdot("),
            ("qmv_fast_impl", "METAL_FUNC void qmv_fast_impl("),
            ("qmv_impl", "METAL_FUNC void qmv_impl("),
        ],
    },
    Followed {
        header: "fp_quantized.h",
        follower: "fp_qmv_streamed.h",
        definitions: &[
            ("Dequantize", "struct Dequantize {"),
            ("dequantize_scale", "static inline T dequantize_scale("),
            ("load_vector", "inline void load_vector("),
            ("qdot", "inline U qdot("),
            ("fp_qmv_fast_impl", "METAL_FUNC void fp_qmv_fast_impl("),
            ("fp_qmv_impl", "METAL_FUNC void fp_qmv_impl("),
        ],
    },
];

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Golden {
    /// The pin that it was made on.
    version: String,
    /// A hash of each definition's tokens, by header and name.
    headers: BTreeMap<String, BTreeMap<String, String>>,
}

pub(crate) fn same_tokens() -> Result<()> {
    let prefix = Prefix::patched()?;
    let kernels = prefix.include().join("mlx/backend/metal/kernels");
    let mut headers = BTreeMap::new();
    for followed in &FOLLOWED {
        let hashes = hashes(&kernels.join(followed.header), followed.definitions)?;
        headers.insert(followed.header.to_owned(), hashes);
    }
    let found = Golden {
        version: prefix.stamp().version.clone(),
        headers,
    };
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/upstream-text.toml");
    if std::env::var_os(BLESS).is_some_and(|value| value == "1") {
        return Ok(fs_err::write(&file, toml::to_string(&found)?)?);
    }
    let stored: Golden = toml::from_str(&fs_err::read_to_string(&file)?)?;
    for Followed {
        header,
        follower,
        definitions,
    } in &FOLLOWED
    {
        let of = |golden: &Golden, name: &str| golden.headers.get(*header)?.get(name).cloned();
        let mut changed: Vec<&str> = definitions.iter().map(|(name, _)| *name).collect();
        changed.retain(|name| of(&found, name) != of(&stored, name));
        ensure!(
            changed.is_empty(),
            "{}: {changed:?} are not as in MLX {}: bring {follower} up to date, then run again with \
             {BLESS}=1",
            kernels.join(header).display(),
            stored.version
        );
    }
    Ok(())
}

fn hashes(header: &Path, definitions: &[(&str, &str)]) -> Result<BTreeMap<String, String>> {
    let text = fs_err::read_to_string(header)?;
    let hashed = definitions.iter().map(|(name, head)| {
        let body = definition(&text, head).with_context(|| header.display().to_string())?;
        Ok(((*name).to_owned(), hash(&tokens(body))))
    });
    hashed.collect()
}

/// A definition from `head` to its last brace.
fn definition<'t>(text: &'t str, head: &str) -> Result<&'t str> {
    let start = text
        .find(head)
        .with_context(|| format!("{head:?} was not found"))?;
    let mut depth = 0;
    for (at, byte) in text.bytes().enumerate().skip(start) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return Ok(&text[start..=at]),
            b'}' => depth -= 1,
            _ => {}
        }
    }
    anyhow::bail!("{head:?} has no end")
}

/// Words and numbers, and all else character by character; no comments.
fn tokens(text: &str) -> Vec<&str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut tokens = Vec::new();
    for line in text.lines() {
        let mut rest = line.split("//").next().unwrap_or_default().trim_start();
        while let Some(first) = rest.chars().next() {
            let length = match rest.find(|c| !is_word(c)) {
                _ if !is_word(first) => first.len_utf8(),
                Some(end) => end,
                None => rest.len(),
            };
            let (token, after) = rest.split_at(length);
            tokens.push(token);
            rest = after.trim_start();
        }
    }
    tokens
}

fn hash(tokens: &[&str]) -> String {
    let mut hash = Sha256::new();
    for token in tokens {
        hash.update(token);
        hash.update([0]);
    }
    let digest = hash.finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
