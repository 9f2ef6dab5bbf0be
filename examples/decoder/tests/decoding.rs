//! Runs the decoder on a small random model, and with DECODER_MODEL (`ci/decoder.sh`) on the real one. Without kernels
//! for policies the comparison is listed as ignored, but fails if DECODER_MODEL is set.

mod support;

use std::path::Path;
use std::process::{Command, Output};

use libtest_mimic::{Arguments, Failed, Trial};
use mlx_overlay::{Backend, build_info, has_policies};
use support::{Shape, model};

/// The answer to the decoder's default question, as in README.md.
const ANSWER: &str = "The largest planet in the solar system is Neptune, but it's actually a planet in its own right. \
    Neptune is the eighth planet from the Sun and is the eighth planet in our solar system.";

fn main() {
    let mut arguments = Arguments::from_args();
    let real = std::env::var_os("DECODER_MODEL");
    let policies = has_policies();
    if !policies {
        eprintln!("decoding is ignored: the linked MLX has no kernels for policies");
    }
    if real.is_none() {
        eprintln!("the real model is ignored: ci/decoder.sh fetches and runs it");
    }
    let asked = real.clone().unwrap_or_default();
    let tests = vec![
        Trial::test("a_random_model_is_decoded_plainly", plainly),
        Trial::test("a_random_model_keeps_its_bits_in_blocks", random).with_ignored_flag(!policies),
        Trial::test("smollm2_answers_the_guides_question", move || {
            smollm2(Path::new(&asked))
        })
        .with_ignored_flag(real.is_none()),
    ];
    // Tests that cannot run here stay ignored even when the long tests are requested.
    arguments.include_ignored &= policies && real.is_some();
    libtest_mimic::run(&arguments, tests).exit();
}

fn decoder(model: &Path, arguments: &[&str]) -> Result<Output, Failed> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_decoder"));
    // A device on which blocks take other kernels than single rows.
    command.env("MTL_SIM_ARCH", "applegpu_g15d");
    Ok(command.arg(model).args(arguments).output()?)
}

/// The output, if it succeeded.
fn printed(output: Output) -> Result<String, Failed> {
    let text = String::from_utf8(output.stdout)?;
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        Ok(text)
    } else {
        Err(format!("{}\n{text}{errors}", output.status).into())
    }
}

/// The parts of the output: token by token, in blocks under `exact`, in blocks under `default`.
fn parts(text: &str) -> Result<[&str; 3], Failed> {
    let (_, rest) = text.split_once("token by token, default:\n").ok_or(text)?;
    let (plain, rest) = rest.split_once("guesses by look-up").ok_or(text)?;
    let (exact, default) = rest.split_once("guesses by look-up").ok_or(text)?;
    Ok([plain, exact, default])
}

fn expect(part: &str, texts: &[&str]) -> Result<(), Failed> {
    match texts.iter().find(|text| !part.contains(**text)) {
        Some(text) => Err(format!("expected {text:?} in\n{part}").into()),
        None => Ok(()),
    }
}

const SAME: [&str; 2] = [
    "bits: all logits are those of decoding token by token",
    "tokens: the same",
];

/// Works with any build.
fn plainly() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("random.gguf");
    let shape = Shape {
        layers: 1,
        heads: 1,
        kv_heads: 1,
        head_dim: 64,
        inner: 64,
        seed: 9,
    };
    std::fs::write(&path, model(&shape).bytes())?;
    let text = printed(decoder(
        &path,
        &["in", "--raw", "--tokens", "3", "--plain"],
    )?)?;
    expect(&text, &["3 tokens in 3 passes"])?;
    assert!(!text.contains("guesses"), "{text}");
    Ok(())
}

fn random() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("random.gguf");
    let shape = Shape {
        layers: 2,
        heads: 4,
        kv_heads: 1,
        head_dim: 64,
        inner: 512,
        seed: 8,
    };
    std::fs::write(&path, model(&shape).bytes())?;
    let text = printed(decoder(
        &path,
        &["the in the", "--raw", "--tokens", "32", "--width", "6"],
    )?)?;
    let [plain, exact, default] = parts(&text)?;
    expect(plain, &["32 tokens in 32 passes"])?;
    expect(exact, &SAME)?;
    // Blocks were guessed, some guesses right and some wrong; otherwise nothing was compared.
    let (passes, guesses) = figures(exact)?;
    assert!(
        passes < 32 && 0 < guesses[0] && guesses[0] < guesses[1],
        "{exact}"
    );
    differs(default)?;

    let damaged = folder.path().join("damaged.gguf");
    std::fs::write(&damaged, &std::fs::read(&path)?[..1000])?;
    let output = decoder(&damaged, &["x"])?;
    let errors = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(1), "{errors}");
    expect(&errors, &["error: ", "damaged.gguf", "fetch it again"])?;
    Ok(())
}

/// The control: stock MLX's blocks have other bits, or the comparison shows nothing. On a Mac the GPU may be one whose
/// blocks have the same.
fn differs(default: &str) -> Result<(), Failed> {
    if build_info()?.backend == Backend::Sim {
        expect(default, &["is the first whose logits differ"])?;
    }
    Ok(())
}

/// The number of passes; the numbers of right guesses and of all.
fn figures(part: &str) -> Result<(usize, [usize; 2]), Failed> {
    let numbers: Vec<usize> = part
        .lines()
        .find(|line| line.contains("guesses were right"))
        .ok_or(part)?
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|number| number.parse().ok())
        .collect();
    match numbers[..] {
        // "N tokens in N passes, N.NN a pass; N of N guesses were right"
        [_, passes, _, _, right, guesses] => Ok((passes, [right, guesses])),
        _ => Err(part.into()),
    }
}

fn smollm2(model: &Path) -> Result<(), Failed> {
    // If it is requested explicitly, it must not pass without running.
    if !has_policies() {
        return Err("the linked MLX has no kernels for policies: run ci/decoder.sh after `cargo xtask build`".into());
    }
    let text = printed(decoder(model, &[])?)?;
    let [plain, exact, default] = parts(&text)?;
    expect(plain, &[ANSWER])?;
    expect(exact, &SAME)?;
    expect(exact, &[ANSWER, "40 tokens in 30 passes"])?;
    if build_info()?.backend == Backend::Sim {
        expect(default, &["tokens: token 16 is the first that differs"])?;
    }
    differs(default)
}
