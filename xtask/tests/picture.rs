//! README's picture is made from what examples/decoder printed: docs/reports/decoder/output.txt. PICTURE_BLESS=1 writes
//! it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt::Write;

const REPORT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reports/decoder");

/// A run of the decoder, as it was printed.
#[derive(Debug)]
struct Run<'a> {
    text: &'a str,
    /// The lines below the text.
    notes: Vec<&'a str>,
}

/// The question, and the three answers: token by token, in blocks under `exact`, in blocks under `default`.
fn runs(output: &str) -> (&str, [Run<'_>; 3]) {
    let (command, _) = output.split_once('\n').unwrap();
    let question = command.split('\'').nth(1).unwrap();
    let run = |head: &str| {
        let (_, rest) = output
            .split_once(head)
            .unwrap_or_else(|| panic!("no {head:?}"));
        let (_, rest) = rest.split_once(":\n").unwrap();
        let (text, rest) = rest.split_once("\n  ").unwrap();
        let notes = rest.lines().take_while(|line| !line.is_empty());
        Run {
            text,
            notes: notes.map(str::trim).collect(),
        }
    };
    let [plain, exact, default] = [
        run("\ntoken by token, default"),
        run("tokens, exact"),
        run("tokens, default"),
    ];
    (question, [plain, exact, default])
}

/// Characters before and after the place where texts part, at most: whole words are shown.
const BEFORE: usize = 44;
const AFTER: usize = 50;

/// The part of a text around the byte `at`, in two: what is common, and what follows.
fn window(text: &str, at: usize) -> (String, String) {
    let line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let kept = |text: &str, edge: char| {
        // Blanks at the seam stay.
        let mut kept = line(text);
        if text.starts_with(char::is_whitespace) {
            kept.insert(0, ' ');
        }
        if text.ends_with(char::is_whitespace) && edge == '<' {
            kept.push(' ');
        }
        kept
    };
    let before = kept(&text[..at], '<');
    let skip = before.chars().count().saturating_sub(BEFORE);
    let before: String = before.chars().skip(skip).collect();
    let before = before.split_once(' ').map_or("", |(_, words)| words);
    let after: String = kept(&text[at..], '>').chars().take(AFTER).collect();
    let after = after.rsplit_once(' ').map_or("", |(words, _)| words);
    (format!("… {before}"), format!("{after} …"))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn picture(output: &str) -> String {
    let (question, [plain, exact, default]) = runs(output);
    let place = plain
        .text
        .bytes()
        .zip(default.text.bytes())
        .position(|(a, b)| a != b)
        .expect("the texts of stock MLX differ");
    // To the start of the word: "and" for "an" is another word.
    let at = plain.text[..place]
        .rfind(char::is_whitespace)
        .map_or(0, |at| at + 1);
    assert_eq!(plain.text, exact.text);

    let mut svg = String::from(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 334" font-family="ui-sans-serif, system-ui, sans-serif" role="img">
<title>The same prompt, decoded three ways</title>
<style>
  .ink { fill: #1f2328 } .soft { fill: #59636e } .card { fill: #f6f8fa; stroke: #d1d9e0 }
  .same { fill: #116329 } .other { fill: #b3261e }
  .text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre }
  @media (prefers-color-scheme: dark) {
    .ink { fill: #f0f6fc } .soft { fill: #9198a1 } .card { fill: #151b23; stroke: #3d444d }
    .same { fill: #56d364 } .other { fill: #ff7b72 }
  }
</style>
"#,
    );
    writeln!(
        svg,
        r#"<text x="20" y="26" font-size="15" class="ink">Same prompt, same model, temperature 0: “{}”</text>"#,
        escaped(question)
    )
    .unwrap();
    let note = |run: &Run<'_>, name| {
        run.notes
            .iter()
            .find_map(|note| note.strip_prefix(name))
            .unwrap()
            .to_owned()
    };
    assert_eq!(note(&exact, "tokens: "), "the same");
    assert_eq!(
        note(&exact, "bits: "),
        "all logits are those of decoding token by token"
    );
    // "token 16 is the first that differs, …"
    let first = note(&default, "tokens: ");
    let verdict = format!(
        "another text from token {} on",
        first.split(' ').nth(1).unwrap()
    );
    let count = plain.notes[0].split(' ').next().unwrap();
    let cards = [
        (
            "One token at a time, stock MLX",
            &plain,
            "soft",
            "the reference".to_owned(),
        ),
        (
            "Speculative decoding, stock MLX",
            &default,
            "other",
            verdict,
        ),
        (
            "Speculative decoding, mlx-overlay, policy exact",
            &exact,
            "same",
            format!("the same {count} tokens, every bit of every logit"),
        ),
    ];
    for (row, (title, run, class, verdict)) in cards.into_iter().enumerate() {
        let y = 42 + 84 * row;
        let (before, after) = window(run.text, at);
        let mark = if class == "soft" { "ink" } else { class };
        write!(
            svg,
            r#"<rect x="12" y="{y}" width="856" height="74" rx="8" class="card"/>
<text x="28" y="{}" font-size="14" font-weight="600" class="ink">{title}</text>
<text x="852" y="{}" font-size="14" text-anchor="end" class="{class}">{verdict}</text>
<text x="28" y="{}" class="text"><tspan class="soft">{}</tspan><tspan class="{mark}">{}</tspan></text>
"#,
            y + 26,
            y + 26,
            y + 55,
            escaped(&before),
            escaped(&after)
        )
        .unwrap();
    }
    svg += r#"<text x="20" y="308" font-size="12" class="soft">SmolLM2-135M-Instruct, 4- and 8-bit weights, on a simulated Apple GPU: MLX's own kernels, run on a CPU.</text>
<text x="20" y="325" font-size="12" class="soft">Drafts by look-up, blocks of up to 8 tokens. Stock MLX: the policy default, which leaves MLX's results as they are.</text>
</svg>
"#;
    svg
}

#[test]
fn the_picture_shows_what_ran() {
    let output = fs_err::read_to_string(format!("{REPORT}/output.txt")).unwrap();
    let made = picture(&output);
    let file = format!("{REPORT}/same-prompt.svg");
    if std::env::var("PICTURE_BLESS").as_deref() == Ok("1") {
        fs_err::write(&file, made).unwrap();
        return;
    }
    let found = fs_err::read_to_string(&file).unwrap();
    assert!(
        found == made,
        "{file} is not made from output.txt; PICTURE_BLESS=1 writes it"
    );
}
