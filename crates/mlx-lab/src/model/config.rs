//! `config.json`, as far as it describes products.

use std::path::{Path, PathBuf};

use mlx_overlay::Quantization;
use serde_json::{Map, Value};

use super::Attention;
use crate::{Error, Result};

/// A model's configuration.
#[derive(Debug, Clone)]
pub struct Config {
    path: PathBuf,
    fields: Map<String, Value>,
}

impl Config {
    /// Reads `config.json` of a folder.
    ///
    /// # Errors
    /// [`Error::File`] or [`Error::Content`].
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join("config.json");
        let text = std::fs::read_to_string(&path).map_err(|source| Error::File {
            path: path.clone(),
            source,
        })?;
        match serde_json::from_str(&text) {
            Ok(Value::Object(fields)) => Ok(Self { path, fields }),
            Ok(_) => Err(Error::content(path, "expected a JSON object")),
            Err(error) => Err(Error::content(path, error)),
        }
    }

    /// The architecture's name, `qwen3` for example.
    pub fn kind(&self) -> &str {
        self.text("model_type").unwrap_or_default()
    }

    /// Whether the embedding is the head as well.
    pub fn tied(&self) -> bool {
        self.field("tie_word_embeddings")
            .and_then(Value::as_bool)
            .unwrap_or(false)
    }

    /// A number that the model cannot be computed without.
    ///
    /// # Errors
    /// [`Error::Content`] if it is not there.
    pub fn require(&self, name: &str) -> Result<f64> {
        self.number(name)
            .ok_or_else(|| Error::content(&self.path, format!("no number `{name}`")))
    }

    /// A count that the model cannot be computed without.
    ///
    /// # Errors
    /// [`Error::Content`] if it is not there.
    pub fn count(&self, name: &str) -> Result<usize> {
        let value = self.field(name).and_then(Value::as_u64);
        value
            .and_then(|value| usize::try_from(value).ok())
            .ok_or_else(|| Error::content(&self.path, format!("no whole number `{name}`")))
    }

    /// A number, if it is there.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.field(name).and_then(Value::as_f64)
    }

    /// Whether a field is there and says something.
    pub fn has(&self, name: &str) -> bool {
        self.field(name).is_some_and(|value| !value.is_null())
    }

    /// An error about this file.
    pub(crate) fn error(&self, reason: impl ToString) -> Error {
        Error::content(&self.path, reason)
    }

    /// Attention, where the fields that describe it are there.
    pub(crate) fn attention(&self) -> Option<Attention> {
        let hidden = self.count("hidden_size").ok()?;
        let heads = self.count("num_attention_heads").ok().filter(|&n| n > 0)?;
        Some(Attention {
            heads,
            kv_heads: self.count("num_key_value_heads").unwrap_or(heads),
            head_dim: self.count("head_dim").unwrap_or(hidden / heads),
            hidden,
            layers: self.count("num_hidden_layers").unwrap_or(1),
        })
    }

    /// How the configuration says that a module is quantized: its own entry, else the common one.
    pub(crate) fn format_of(
        &self,
        module: &str,
    ) -> std::result::Result<Option<Quantization>, String> {
        let common = ["quantization", "quantization_config"]
            .into_iter()
            .find_map(|name| self.fields.get(name)?.as_object());
        let Some(common) = common else {
            return Ok(None);
        };
        let own = common.get(module).and_then(Value::as_object);
        let field = |name: &str| own.and_then(|own| own.get(name)).or(common.get(name));
        let number = |name: &str, default: u32| match field(name) {
            None => Ok(default),
            Some(value) => value
                .as_u64()
                .and_then(|value| u32::try_from(value).ok())
                .ok_or_else(|| format!("`{name}` in config.json is {value}, expected a number")),
        };
        let mode = field("mode").and_then(Value::as_str).unwrap_or("affine");
        let quantization = match mode {
            "affine" => Quantization::affine(number("bits", 4)?, number("group_size", 64)?)
                .map_err(|error| error.to_string())?,
            other => crate::product::parse_format(other)?,
        };
        Ok(Some(quantization))
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.field(name).and_then(Value::as_str)
    }

    /// A field; models of several parts keep those of the language model in `text_config`.
    fn field(&self, name: &str) -> Option<&Value> {
        self.fields
            .get(name)
            .or_else(|| self.fields.get("text_config")?.get(name))
    }
}
