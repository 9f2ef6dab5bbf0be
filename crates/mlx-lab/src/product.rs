//! The shape of a quantized product, and its text form.

use std::fmt;
use std::str::FromStr;

use mlx_overlay::Quantization;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The longest extent of MLX's arrays.
const MOST: usize = i32::MAX as usize;

/// No memory has room for more weights.
const MOST_WEIGHTS: u64 = 1 << 38;

/// The matrix of a quantized product: `n` outputs and `k` values per row.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Product {
    /// The name in reports; may be empty.
    pub name: String,
    /// Outputs per row: the rows of the matrix.
    pub n: usize,
    /// Values per row: the columns of the matrix.
    pub k: usize,
    /// How it is quantized.
    pub quantization: Quantization,
}

impl Product {
    /// A product without a name.
    ///
    /// # Errors
    /// [`Error::Product`] if `k` is not a multiple of the group size, or something is 0.
    pub fn new(n: usize, k: usize, quantization: Quantization) -> Result<Self> {
        let product = Self {
            name: String::new(),
            n,
            k,
            quantization,
        };
        match product.complaint() {
            None => Ok(product),
            Some(reason) => Err(Error::Product {
                found: product.to_string(),
                reason,
            }),
        }
    }

    /// The same product with a name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Bytes of packed weights, scales and biases. `scale_bytes` is the size of an affine scale.
    pub fn bytes(&self, scale_bytes: usize) -> u64 {
        let weights = self.n as u64 * self.k as u64;
        let groups = weights / u64::from(self.quantization.group_size());
        let group = if self.quantization.has_biases() {
            2 * scale_bytes as u64
        } else {
            1
        };
        weights * u64::from(self.quantization.bits()) / 8 + groups * group
    }

    /// Shape and format, without the name.
    pub fn shape(&self) -> String {
        format!("{}x{}:{}", self.n, self.k, format(self.quantization))
    }

    fn complaint(&self) -> Option<String> {
        let group = self.quantization.group_size() as usize;
        if self.n == 0 || self.k == 0 {
            Some("outputs and values must not be 0".to_owned())
        } else if self.n.max(self.k) > MOST || self.n as u64 * self.k as u64 > MOST_WEIGHTS {
            Some(format!(
                "at most {MOST} outputs and values, and 2^38 weights"
            ))
        } else if !self.k.is_multiple_of(group) {
            Some(format!(
                "the values must be a multiple of the group size, {group}"
            ))
        } else {
            None
        }
    }
}

/// `4:64`, `mxfp4`.
pub fn format(quantization: Quantization) -> String {
    if quantization.has_biases() {
        format!("{}:{}", quantization.bits(), quantization.group_size())
    } else {
        quantization.mode().to_string()
    }
}

/// The inverse of [`format()`]; the default group size is 64.
///
/// # Errors
/// The problem, as text.
pub fn parse_format(text: &str) -> std::result::Result<Quantization, String> {
    match text {
        "mxfp4" => return Ok(Quantization::Mxfp4),
        "mxfp8" => return Ok(Quantization::Mxfp8),
        "nvfp4" => return Ok(Quantization::Nvfp4),
        _ => {}
    }
    let (bits, group) = text.split_once(':').unwrap_or((text, "64"));
    let number = |text: &str| {
        text.parse().map_err(|_| {
            format!("\"{text}\" is neither a number nor one of mxfp4, mxfp8 and nvfp4")
        })
    };
    Quantization::affine(number(bits)?, number(group)?).map_err(|error| error.to_string())
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.name.is_empty() {
            write!(f, "{}=", self.name)?;
        }
        f.write_str(&self.shape())
    }
}

impl FromStr for Product {
    type Err = Error;

    fn from_str(found: &str) -> Result<Self> {
        let fail = |reason: String| Error::Product {
            found: found.to_owned(),
            reason,
        };
        let (name, rest) = found.rsplit_once('=').unwrap_or(("", found));
        let (shape, format) = rest.split_once(':').unwrap_or((rest, "4"));
        let (n, k) = shape
            .split_once('x')
            .ok_or_else(|| fail("expected an x between outputs and values".to_owned()))?;
        let count = |text: &str| {
            text.parse()
                .map_err(|_| fail(format!("\"{text}\" is not a number")))
        };
        let quantization = parse_format(format).map_err(fail)?;
        let product = Self {
            name: name.to_owned(),
            n: count(n)?,
            k: count(k)?,
            quantization,
        };
        match product.complaint() {
            None => Ok(product),
            Some(reason) => Err(fail(reason)),
        }
    }
}

/// A product as it is stored in files.
#[derive(Serialize, Deserialize)]
struct Written {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    name: String,
    n: usize,
    k: usize,
    format: String,
}

impl From<Product> for Written {
    fn from(product: Product) -> Self {
        Self {
            format: format(product.quantization),
            name: product.name,
            n: product.n,
            k: product.k,
        }
    }
}

impl TryFrom<Written> for Product {
    type Error = Error;

    fn try_from(written: Written) -> Result<Self> {
        let quantization = parse_format(&written.format).map_err(|reason| Error::Product {
            found: written.format.clone(),
            reason,
        })?;
        Ok(Self::new(written.n, written.k, quantization)?.named(written.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_written_as_they_are_read() {
        for text in ["head=248320x2560:4:64", "17408x5120:8:32", "64x64:nvfp4"] {
            let product: Product = text.parse().unwrap();
            assert_eq!(product.to_string(), text);
            let json = serde_json::to_string(&product).unwrap();
            assert_eq!(serde_json::from_str::<Product>(&json).unwrap(), product);
        }
        let short: Product = "17408x5120".parse().unwrap();
        assert_eq!(short.shape(), "17408x5120:4:64");
    }

    #[test]
    fn bytes_count_scales_and_biases() {
        let product: Product = "8x128:4:64".parse().unwrap();
        // Half a byte per weight; two groups per row, with two numbers of two bytes each.
        assert_eq!(product.bytes(2), 8 * (64 + 2 * 2 * 2));
        let product: Product = "8x128:nvfp4".parse().unwrap();
        assert_eq!(product.bytes(2), 8 * (64 + 8));
    }

    #[test]
    fn nonsense_is_named() {
        for (text, reason) in [
            ("17408", "expected an x between"),
            ("ax512", "\"a\" is not a number"),
            ("8x100", "multiple of the group size, 64"),
            (
                "8x512:7",
                "bits must be 1, 2, 3, 4, 5, 6 or 8 in mode affine",
            ),
            ("8x512:int4", "neither a number nor one of"),
            ("0x512", "must not be 0"),
            ("4294967296x64", "at most 2147483647 outputs"),
            ("2147483647x2147483584", "2^38 weights"),
        ] {
            let error = text.parse::<Product>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
