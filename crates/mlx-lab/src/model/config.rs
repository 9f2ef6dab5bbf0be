//! The parts of `config.json` that describe products.

use std::path::{Path, PathBuf};

use mlx_overlay::Quantization;
use serde_json::{Map, Value};

use super::folder::read_text;
use super::python;
use crate::{Error, Result};

/// A model's configuration.
#[derive(Debug, Clone)]
pub struct Config {
    path: PathBuf,
    fields: Map<String, Value>,
}

/// How the configuration describes a module's quantization.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stated {
    /// The module has its own entry.
    Own(Quantization),
    /// The module has an entry that says it is not quantized.
    Not,
    /// The module has no entry: its shapes decide.
    Common,
    /// Nothing is quantized.
    Nothing,
}

impl Config {
    /// Reads the `config.json` of a folder.
    ///
    /// # Errors
    /// [`Error::File`] or [`Error::Content`].
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join("config.json");
        match python::parse(&read_text(&path)?) {
            Ok(Value::Object(fields)) => Ok(Self { path, fields }),
            Ok(_) => Err(Error::content(path, "expected a JSON object")),
            Err(error) => Err(Error::content(path, error)),
        }
    }

    /// The architecture's name, for example `qwen3`.
    pub fn kind(&self) -> &str {
        let kind = self.fields.get("model_type").and_then(Value::as_str);
        kind.unwrap_or_default()
    }

    /// Whether the model, or its language model, has one of these architectures.
    pub(super) fn is_one_of(&self, kinds: &[&str]) -> bool {
        let text = self.text("model_type").unwrap_or_default();
        kinds.contains(&self.kind()) || kinds.contains(&text)
    }

    /// Whether the embedding is also the head, if this is stated. Tensors decide: see [`super::Model`].
    pub fn tied(&self) -> Option<bool> {
        self.field("tie_word_embeddings").and_then(Value::as_bool)
    }

    /// A count, if it is present.
    ///
    /// # Errors
    /// [`Error::Content`] unless it is a whole number from 1 to the largest extent of MLX's arrays.
    pub fn optional_count(&self, name: &str) -> Result<Option<usize>> {
        let Some(value) = self.field(name) else {
            return Ok(None);
        };
        match as_count(value) {
            Some(count) => Ok(Some(count)),
            None => Err(self.error(format!(
                "`{name}` is {value}, expected a whole number from 1 to {}",
                i32::MAX
            ))),
        }
    }

    /// The counts in any of these fields, alone or in a list with one per layer.
    pub(super) fn counts(&self, names: &[&str]) -> Vec<usize> {
        let values = names.iter().filter_map(|name| self.field(name));
        let all = values.flat_map(|value| match value {
            Value::Array(list) => list.iter().filter_map(as_count).collect(),
            value => Vec::from_iter(as_count(value)),
        });
        all.collect()
    }

    /// A number, if it is present.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.field(name).and_then(python::number)
    }

    /// A text, if it is present.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.field(name).and_then(Value::as_str)
    }

    /// Whether a field is present and true.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.field(name).and_then(Value::as_bool).unwrap_or(false)
    }

    /// Texts, one per layer.
    pub(crate) fn texts(&self, name: &str) -> Option<Vec<&str>> {
        let list = self.field(name)?.as_array()?;
        list.iter().map(Value::as_str).collect()
    }

    /// An error about this file.
    pub(crate) fn error(&self, reason: impl ToString) -> Error {
        Error::content(&self.path, reason)
    }

    /// The scaling of rotary positions (`default` if there is none), for layers of a kind (`full_attention`).
    /// transformers 5 stores it in `rope_parameters`, which may have an entry per kind.
    pub(super) fn rope(&self, kind: &str) -> &str {
        let scaling = self.field("rope_scaling").and_then(Value::as_object);
        let parameters = self.field("rope_parameters").and_then(Value::as_object);
        let parameters = parameters.map(|all| match all.get(kind).and_then(Value::as_object) {
            Some(own) => own,
            None => all,
        });
        let name = [scaling, parameters]
            .into_iter()
            .flatten()
            .find_map(|own| own.get("type").or_else(|| own.get("rope_type")))
            .and_then(Value::as_str);
        // Unnamed scaling is not the default: mlx-lm rejects it too.
        let unnamed = scaling.is_some_and(|own| own.contains_key("factor"));
        name.unwrap_or(if unnamed { "unnamed" } else { "default" })
    }

    /// How the configuration describes a module's quantization.
    pub(super) fn stated(&self, module: &str) -> std::result::Result<Stated, String> {
        let Some(common) = self.quantization() else {
            return Ok(Stated::Nothing);
        };
        match common.get(module) {
            Some(Value::Object(own)) if own.is_empty() => Ok(Stated::Not),
            // An entry is passed to `to_quantized` unchanged: missing values get the defaults of its own mode.
            Some(Value::Object(own)) => entry(own).map(Stated::Own),
            Some(Value::Bool(false)) => Ok(Stated::Not),
            Some(Value::Bool(true)) => self.common().map(Stated::Own),
            Some(other) => Err(format!(
                "its entry in config.json's quantization is {other}, expected an object, true or false"
            )),
            None => Ok(Stated::Common),
        }
    }

    /// The format of modules without an entry.
    pub(super) fn common(&self) -> std::result::Result<Quantization, String> {
        let entries = self
            .quantization()
            .ok_or("config.json has no `quantization`")?;
        let Some(method) = entries.get("quant_method").and_then(Value::as_str) else {
            return entry(entries);
        };
        // Mapped as in mlx-lm's `load_model`.
        let format = entries.get("format").and_then(Value::as_str);
        match (method, format) {
            ("mxfp4", _) | ("compressed-tensors", Some("mxfp4-pack-quantized")) => {
                Ok(Quantization::Mxfp4)
            }
            ("mxfp8" | "fp8", _) => Ok(Quantization::Mxfp8),
            ("modelopt", _) | ("compressed-tensors", Some("nvfp4-pack-quantized")) => {
                Ok(Quantization::Nvfp4)
            }
            ("compressed-tensors", Some("pack-quantized")) => affine(4, 32),
            _ => Err(format!(
                "config.json has the quantization method `{method}`, which MLX does not support: convert the model with \
                 `mlx_lm.convert`"
            )),
        }
    }

    /// The entries of the quantization. mlx-lm also looks in `text_config`.
    fn quantization(&self) -> Option<&Map<String, Value>> {
        let text = self.fields.get("text_config").and_then(Value::as_object);
        [Some(&self.fields), text]
            .into_iter()
            .flatten()
            .flat_map(|fields| ["quantization", "quantization_config"].map(|name| fields.get(name)))
            .flatten()
            .find_map(Value::as_object)
    }

    /// A field with a value. Models with several parts store those of the language model in `text_config`.
    fn field(&self, name: &str) -> Option<&Value> {
        let text = self.fields.get("text_config").and_then(Value::as_object);
        [text, Some(&self.fields)]
            .into_iter()
            .flatten()
            .filter_map(|fields| fields.get(name))
            .find(|value| !value.is_null())
    }
}

fn as_count(value: &Value) -> Option<usize> {
    let count = value.as_u64().and_then(|count| i32::try_from(count).ok())?;
    usize::try_from(count).ok().filter(|&count| count > 0)
}

/// A format in the form that `to_quantized` accepts.
fn entry(fields: &Map<String, Value>) -> std::result::Result<Quantization, String> {
    let number = |name: &str| match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value
            .as_u64()
            .and_then(|value| u32::try_from(value).ok())
            .map(Some)
            .ok_or_else(|| format!("`{name}` in config.json is {value}, expected a number")),
    };
    let (bits, group) = (number("bits")?, number("group_size")?);
    let mode = match fields.get("mode") {
        None | Some(Value::Null) => "affine",
        Some(Value::String(mode)) => mode,
        Some(other) => return Err(format!("`mode` in config.json is {other}, expected a text")),
    };
    if mode == "affine" {
        return affine(bits.unwrap_or(4), group.unwrap_or(64));
    }
    let fixed = crate::product::parse_format(mode).map_err(|_| {
        format!("`mode` in config.json is \"{mode}\", expected affine, mxfp4, mxfp8 or nvfp4")
    })?;
    for (name, found, expected) in [
        ("bits", bits, fixed.bits()),
        ("group_size", group, fixed.group_size()),
    ] {
        if found.is_some_and(|found| found != expected) {
            return Err(format!(
                "`{name}` in config.json is {}, expected {expected} in mode {mode}",
                found.unwrap_or_default()
            ));
        }
    }
    Ok(fixed)
}

fn affine(bits: u32, group: u32) -> std::result::Result<Quantization, String> {
    Quantization::affine(bits, group).map_err(|error| error.to_string())
}
