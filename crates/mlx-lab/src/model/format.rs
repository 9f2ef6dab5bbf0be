//! How a module is quantized.

use mlx_overlay::Quantization;
use safetensors::Dtype;

use super::attention::HEADS;
use super::config::Stated;
use super::folder::Tensor;
use super::{Config, Folder, HIDDEN};
use crate::{Error, Result};

/// How a module is quantized; `None` if it has no scales. As in mlx-lm, the module's entry in `config.json` decides,
/// otherwise its shapes.
///
/// # Errors
/// [`Error::Content`] with the module, if its tensors do not match each other or the configuration.
pub(crate) fn quantization(
    config: &Config,
    folder: &Folder,
    module: &str,
) -> Result<Option<Quantization>> {
    decide(config, folder, module)
        .map_err(|reason| Error::content(folder.path(), format!("{module}: {reason}")))
}

fn decide(
    config: &Config,
    folder: &Folder,
    module: &str,
) -> std::result::Result<Option<Quantization>, String> {
    let part = |name: &str| folder.find(&format!("{module}.{name}"));
    let weight = part("weight").ok_or("has no weight")?;
    let stated = config.stated(module)?;
    let Some(scales) = part("scales") else {
        return match stated {
            Stated::Own(format) => Err(format!(
                "config.json says {}, but it has no scales",
                crate::product::format(format)
            )),
            _ => Ok(None),
        };
    };
    let biases = part("biases");
    check_parts(weight, scales, biases)?;
    let fitting = fitting(weight, scales);
    let fits = |format: &Quantization| fitting.iter().any(|(other, _)| other == format);
    let format = match stated {
        Stated::Nothing => {
            return Err("has scales, but config.json has no `quantization`".to_owned());
        }
        Stated::Not => {
            return Err("has scales, but config.json says that it is not quantized".to_owned());
        }
        Stated::Own(format) if fits(&format) => format,
        Stated::Own(format) => {
            return Err(format!(
                "config.json says {}, but {}",
                crate::product::format(format),
                shapes(weight, scales)
            ));
        }
        Stated::Common => {
            let common = config.common()?;
            let widths = widths(config, folder, module);
            let is_likely = |k: usize| widths.contains(&k);
            let of_width = |width: &usize| {
                let mut of = fitting.iter().filter(|(_, k)| k == width);
                of.next().filter(|_| of.next().is_none())
            };
            match (widths.iter().find_map(of_width), &fitting[..]) {
                _ if fitting
                    .iter()
                    .any(|&(format, k)| format == common && is_likely(k)) =>
                {
                    common
                }
                (Some(&(format, _)), _) | (None, &[(format, _)]) => format,
                _ if fits(&common) => common,
                (_, []) => {
                    return Err(format!("no format of MLX fits: {}", shapes(weight, scales)));
                }
                _ => {
                    return Err(format!(
                        "several formats fit ({}), but config.json does not name the module: give it an entry in \
                         `quantization`",
                        shapes(weight, scales)
                    ));
                }
            }
        }
    };
    match (format.has_biases(), biases) {
        (true, None) => Err("has scales but no biases, which affine formats need".to_owned()),
        (false, Some(_)) => Err(format!("has biases, which {} does not use", format.mode())),
        _ => Ok(Some(format)),
    }
}

/// Fails for parts that do not belong to one matrix.
fn check_parts(
    weight: &Tensor,
    scales: &Tensor,
    biases: Option<&Tensor>,
) -> std::result::Result<(), String> {
    if weight.dtype != Dtype::U32 {
        return Err(format!(
            "has scales, but its weight is {:?}, expected U32",
            weight.dtype
        ));
    }
    let rows = |tensor: &Tensor| tensor.shape.split_last().map(|(_, rows)| rows.to_vec());
    if weight.shape.len() < 2 || rows(weight) != rows(scales) {
        return Err(shapes(weight, scales));
    }
    let Some(biases) = biases else { return Ok(()) };
    if (&biases.shape, biases.dtype) != (&scales.shape, scales.dtype) {
        return Err(format!(
            "scales are {:?} {:?} and biases {:?} {:?}, expected the same",
            scales.dtype, scales.shape, biases.dtype, biases.shape
        ));
    }
    Ok(())
}

fn shapes(weight: &Tensor, scales: &Tensor) -> String {
    format!(
        "its weight is {:?} and its scales are {:?} {:?}",
        weight.shape, scales.dtype, scales.shape
    )
}

/// The formats that fit these shapes, each with the values per row.
fn fitting(weight: &Tensor, scales: &Tensor) -> Vec<(Quantization, usize)> {
    let last = |tensor: &Tensor| tensor.shape.last().copied().unwrap_or(0);
    let formats: Vec<Quantization> = match scales.dtype {
        Dtype::U8 => vec![
            Quantization::Mxfp4,
            Quantization::Mxfp8,
            Quantization::Nvfp4,
        ],
        Dtype::F16 | Dtype::BF16 | Dtype::F32 => (1..=8)
            .flat_map(|bits| [16, 32, 64, 128].map(|group| Quantization::affine(bits, group)))
            .flatten()
            .collect(),
        _ => Vec::new(),
    };
    let fit = |format: Quantization| {
        let k = last(scales).checked_mul(format.group_size() as usize)?;
        let bits = k.checked_mul(format.bits() as usize)?;
        (last(weight).checked_mul(32)? == bits).then_some((format, k))
    };
    formats.into_iter().filter_map(fit).collect()
}

/// Possible values per row of the module, derived from its name, likely ones first; mlx-lm gets them from its modules.
fn widths(config: &Config, folder: &Folder, module: &str) -> Vec<usize> {
    let (parent, name) = module.rsplit_once('.').unwrap_or(("", module));
    let outputs = |name: &str| {
        let weight = folder.find(&format!("{parent}.{name}.weight"))?;
        weight.shape.len().checked_sub(2).map(|at| weight.shape[at])
    };
    match name {
        "q_proj" | "k_proj" | "v_proj" | "qkv_proj" | "query_key_value" | "gate_proj"
        | "up_proj" | "gate_up_proj" | "gate" | "router" | "shared_expert_gate" | "fc1"
        | "c_fc" | "q_a_proj" | "kv_a_proj_with_mqa" | "embed_tokens" | "wte" | "lm_head" => {
            config.counts(&HIDDEN)
        }
        "down_proj" => ["gate_proj", "up_proj"]
            .into_iter()
            .filter_map(outputs)
            .collect(),
        "fc2" => outputs("fc1").into_iter().collect(),
        "o_proj" => {
            let Some(n) = outputs("q_proj") else {
                return Vec::new();
            };
            let dims =
                config.counts(&["head_dim", "v_head_dim", "global_head_dim", "swa_head_dim"]);
            let of_heads = |values: usize| {
                let heads = config.counts(&HEADS);
                heads.iter().any(|heads| {
                    dims.iter()
                        .any(|dim| heads.checked_mul(*dim) == Some(values))
                })
            };
            // With a gate, q has two numbers for each value of a head.
            if config.flag("attn_output_gate") || config.kind().starts_with("qwen3_next") {
                vec![n / 2]
            } else if !of_heads(n) && of_heads(n / 2) {
                vec![n / 2, n]
            } else {
                vec![n]
            }
        }
        _ => Vec::new(),
    }
}
