//! Text and tokens: the vocabulary and the merges of a GGUF file, passed to the library that defines such tokenizers.

use anyhow::{Context, Result, anyhow, ensure};
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::{AddedToken, Tokenizer};

use crate::gguf::Gguf;

/// GGUF's number for a control token.
const CONTROL: i128 = 3;

/// The marker around a user's message and the answer. The file has the same as a Jinja template.
const CHAT: &str = "<|im_start|>";

/// The model's tokenizer.
#[derive(Debug)]
pub struct Text {
    tokenizer: Tokenizer,
    end: u32,
    /// The file's chat template.
    template: Option<String>,
}

impl Text {
    /// Reads vocabulary, merges and special tokens.
    pub fn read(file: &Gguf) -> Result<Self> {
        let path = file.path().display();
        let (model, split) = (
            file.text("tokenizer.ggml.model")?,
            file.text("tokenizer.ggml.pre")?,
        );
        ensure!(
            (model, split) == ("gpt2", "smollm"),
            "{path} has a tokenizer `{model}` that splits text like `{split}`, but this example supports only gpt2 with smollm"
        );
        let tokens = file.texts("tokenizer.ggml.tokens")?;
        let kinds = file.integers("tokenizer.ggml.token_type")?;
        let merges = file.texts("tokenizer.ggml.merges")?;
        ensure!(
            Some(tokens.len()) == file.integer("llama.vocab_size").ok()
                && kinds.len() == tokens.len(),
            "{path}: there are {} tokens and {} types of tokens, but `llama.vocab_size` differs",
            tokens.len(),
            kinds.len()
        );
        let mut pairs = Vec::new();
        for merge in merges {
            let (left, right) = merge
                .split_once(' ')
                .with_context(|| format!("{path}: the merge {merge:?} is not a pair"))?;
            pairs.push((left.to_owned(), right.to_owned()));
        }
        let ids = (0..).zip(&tokens);
        let vocabulary: Vocab = ids.map(|(id, &token)| (token.to_owned(), id)).collect();
        ensure!(vocabulary.len() == tokens.len(), "{path} has a token twice");
        let bpe = BPE::builder()
            .vocab_and_merges(vocabulary, pairs)
            .build()
            .map_err(|error| anyhow!("{path}: its merges do not match its vocabulary: {error}"))?;

        // As in the model's own tokenizer.json: each digit separately, then GPT-2's words.
        let words = ByteLevel::new(false, true, true);
        let mut tokenizer = Tokenizer::new(bpe);
        tokenizer.with_pre_tokenizer(Some(Sequence::new(vec![
            Digits::new(true).into(),
            words.into(),
        ])));
        tokenizer.with_decoder(Some(words));
        let special = tokens.iter().zip(kinds);
        let special = special.filter(|(_, kind)| *kind == CONTROL);
        tokenizer
            .add_special_tokens(special.map(|(token, _)| AddedToken::from(*token, true)))
            .map_err(|error| anyhow!("{path}: its special tokens: {error}"))?;

        let end = file.integer("tokenizer.ggml.eos_token_id")?;
        ensure!(
            end < tokens.len(),
            "{path}: the last token of a text is {end}, of {}",
            tokens.len()
        );
        Ok(Self {
            tokenizer,
            end: u32::try_from(end)?,
            template: file.text("tokenizer.chat_template").ok().map(str::to_owned),
        })
    }

    /// The token that ends a text.
    pub fn end(&self) -> u32 {
        self.end
    }

    /// The name of a token, as in the vocabulary.
    pub fn name(&self, token: u32) -> Option<String> {
        self.tokenizer.id_to_token(token)
    }

    /// A question in the form that the model was trained on (ChatML), up to the start of the answer.
    pub fn question(&self, system: &str, question: &str) -> Result<Vec<u32>> {
        let template = self.template.as_deref().unwrap_or_default();
        ensure!(
            template.contains(CHAT),
            "the file has no chat template with {CHAT}: use --raw"
        );
        self.tokens(&format!(
            "<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
        ))
    }

    /// The tokens of a text. Names of special tokens in it become special tokens.
    pub fn tokens(&self, text: &str) -> Result<Vec<u32>> {
        let encoding = self
            .tokenizer
            .encode(text, false)
            .map_err(|error| anyhow!("{text:?} cannot be split into tokens: {error}"))?;
        let tokens = encoding.get_ids();
        // A byte that is not in the vocabulary would be dropped.
        let back = self.tokenizer.decode(tokens, false);
        ensure!(
            back.is_ok_and(|back| back == text),
            "{text:?} has characters for which the model has no tokens"
        );
        Ok(tokens.to_vec())
    }

    /// The text of tokens, without special ones. An incomplete character becomes U+FFFD.
    pub fn of(&self, tokens: &[u32]) -> Result<String> {
        let text = self.tokenizer.decode(tokens, true);
        text.map_err(|error| anyhow!("{tokens:?} have no text: {error}"))
    }

    /// The tokenizer, as Hugging Face's `tokenizer.json`.
    pub fn to_json(&self) -> Result<String> {
        let json = self.tokenizer.to_string(false);
        json.map_err(|error| anyhow!("the tokenizer cannot be written as JSON: {error}"))
    }

    /// The chat template.
    pub fn template(&self) -> Option<&str> {
        self.template.as_deref()
    }
}
