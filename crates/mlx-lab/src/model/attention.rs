//! The attention of each layer, derived from its tensors and, if necessary, from the configuration.

use std::collections::{BTreeMap, BTreeSet};

use super::{Config, HIDDEN, Inventory};

/// The attention of several identical layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attention {
    /// Heads of the queries.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Values per head of queries and keys.
    pub head_dim: usize,
    /// Values per head of values.
    pub value_dim: usize,
    /// Whether each head has a sink.
    pub sinks: bool,
    /// Positions that a row sees, if not all before it.
    pub window: Option<usize>,
    /// Number of layers with this attention.
    pub layers: usize,
}

/// How a layer mixes positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Full,
    Sliding,
}

pub(super) const HEADS: [&str; 3] = ["num_attention_heads", "n_head", "n_heads"];
const KV_HEADS: [&str; 3] = ["num_key_value_heads", "n_head_kv", "n_kv_heads"];

/// Modules that indicate latent attention.
const LATENT: [&str; 5] = [
    "kv_a_proj_with_mqa",
    "kv_b_proj",
    "q_a_proj",
    "embed_q",
    "unembed_out",
];

impl Config {
    /// The kind of each layer, if the configuration has it.
    fn layer_kinds(&self, layers: usize) -> Option<Vec<&str>> {
        if let Some(kinds) = self.texts("layer_types") {
            return Some(kinds);
        }
        if let Some(letters) = self
            .text("sliding_window_pattern")
            .filter(|text| !text.is_empty())
        {
            let kind = |letter: char| match letter {
                'L' => "sliding_attention",
                _ => "full_attention",
            };
            return Some(letters.chars().map(kind).cycle().take(layers).collect());
        }
        // Every n-th layer sees all positions, the others only a window.
        let pattern = self.optional_count("sliding_window_pattern").ok().flatten();
        let every = pattern.or(match self.kind() {
            "gemma3" | "gemma3_text" => Some(6),
            "gemma4" | "gemma4_text" => Some(5),
            "cohere2" => Some(4),
            "plamo3" => Some(8),
            "gpt_oss" => Some(2),
            _ => None,
        })?;
        let kind = |i: usize| match (i + 1) % every {
            0 => "full_attention",
            _ => "sliding_attention",
        };
        Some((0..layers).map(kind).collect())
    }
}

/// The attention of the layers of an inventory, in order, with identical layers merged. Other mixers, and attention
/// that does not match the configuration, are skipped by name.
pub(super) fn read(config: &Config, inventory: &mut Inventory, layers: usize) -> Vec<Attention> {
    let kinds = config.layer_kinds(layers);
    let mut shapes: Vec<Attention> = Vec::new();
    // A layer that uses the keys of an earlier one has no keys of its own.
    let mut earlier: BTreeMap<bool, usize> = BTreeMap::new();
    for layer in 0..layers {
        let kind = match &kinds {
            None => Some("full_attention"),
            Some(kinds) => kinds.get(layer).copied(),
        };
        for found in of_layer(config, inventory, layer, kind, &mut earlier) {
            let attention = match found {
                Ok(attention) => attention,
                Err((name, reason)) => {
                    inventory.skip(name, reason);
                    continue;
                }
            };
            let alike = |shape: &&mut Attention| {
                Attention {
                    layers: 0,
                    ..**shape
                } == attention
            };
            match shapes.iter_mut().find(alike) {
                Some(shape) => shape.layers += 1,
                None => shapes.push(Attention {
                    layers: 1,
                    ..attention
                }),
            }
        }
    }
    shapes
}

/// The attention of a layer, or what is skipped and why.
type Found = std::result::Result<Attention, (String, String)>;

fn of_layer(
    config: &Config,
    inventory: &Inventory,
    layer: usize,
    kind: Option<&str>,
    earlier: &mut BTreeMap<bool, usize>,
) -> Vec<Found> {
    let modules = inventory.of_layer(layer);
    let whole = |reason: String| Err((format!("layer {layer}"), reason));
    let queries = modules.iter().filter_map(|module| {
        let (parent, name) = module.rsplit_once('.')?;
        begins(name).then_some(parent)
    });
    let mut parents: Vec<&str> = queries.collect();
    parents.dedup();
    let mixer = modules.iter().find_map(|module| {
        let is_other =
            |part: &&str| MIXERS.contains(part) && !parents.iter().any(|name| name.ends_with(part));
        module.split('.').find(is_other)
    });
    let mut found = Vec::new();
    if let Some(mixer) = mixer {
        found.push(whole(format!(
            "mixes positions by `{mixer}`, which is not probed"
        )));
    } else if parents.is_empty() {
        found.push(whole("has no known attention".to_owned()));
    }
    let kind = match kind {
        Some("full_attention" | "attention" | "global_attention" | "global") => Kind::Full,
        Some("sliding_attention" | "sliding_window" | "local_attention" | "local") => Kind::Sliding,
        other => {
            let name = other.unwrap_or("nothing");
            found.push(whole(format!(
                "config.json calls it {name}, which is not probed"
            )));
            return found;
        }
    };
    for parent in parents {
        let attention = of_module(config, inventory, &modules, parent, kind, earlier);
        found.push(attention.map_err(|reason| (parent.to_owned(), reason)));
    }
    found
}

/// Whether a module starts an attention: every projection of queries does.
fn begins(name: &str) -> bool {
    name == "q_proj" || FUSED.contains(&name) || LATENT.contains(&name)
}

/// The modules with which a layer mixes positions, by attention or otherwise; layers may differ in them.
pub(super) fn mixers(modules: &BTreeSet<String>) -> BTreeSet<&str> {
    fn split(module: &str) -> (&str, &str) {
        module.rsplit_once('.').unwrap_or(("", module))
    }
    let modules = modules.iter().map(String::as_str);
    let queries = modules.clone().map(split).filter(|(_, name)| begins(name));
    let attention: BTreeSet<&str> = queries.map(|(parent, _)| parent).collect();
    let is_mixer = |module: &&str| {
        attention.contains(split(module).0) || module.split('.').any(|part| MIXERS.contains(&part))
    };
    modules.filter(is_mixer).collect()
}

fn of_module(
    config: &Config,
    inventory: &Inventory,
    modules: &[&str],
    parent: &str,
    kind: Kind,
    earlier: &mut BTreeMap<bool, usize>,
) -> std::result::Result<Attention, String> {
    let children: Vec<&str> = modules
        .iter()
        .filter_map(|module| module.strip_prefix(parent)?.strip_prefix('.'))
        .collect();
    let product = |name: &str| inventory.product(&format!("{parent}.{name}"));
    let one_of =
        |names: &[&'static str]| names.iter().copied().find(|name| product(name).is_some());
    if LATENT.iter().any(|name| children.contains(name)) {
        return Err("latent attention, which is not probed".to_owned());
    }
    if let Some(why) = by_hand(config) {
        return Err(why.to_owned());
    }
    let fused = one_of(&FUSED);
    let q = one_of(&["q_proj"]).or(fused);
    let Some((n, _)) = q.and_then(product) else {
        return Err("its queries are not probed, so its shape is not known".to_owned());
    };
    let Some((_, summed)) = one_of(&OUTPUTS).and_then(product) else {
        return Err("has no known output projection".to_owned());
    };
    let known = |name: &&&str| {
        ["q_proj", "k_proj", "v_proj"].contains(name)
            || FUSED.contains(name)
            || OUTPUTS.contains(name)
    };
    // Another matrix, such as a gate, makes it a different kind of attention.
    let stranger = children
        .iter()
        .find(|name| !known(name) && product(name).is_some());
    if let Some(stranger) = stranger {
        return Err(format!(
            "attention with `{stranger}`, which is unknown and not probed"
        ));
    }
    let sizes = Sizes {
        n,
        fused: fused == q,
        keys: product("k_proj").map(|(n, _)| n),
        values: product("v_proj").map(|(n, _)| n),
        summed,
        norm: inventory.vector(&format!("{parent}.q_norm")),
        earlier: earlier.get(&(kind == Kind::Sliding)).copied(),
    };
    let mut attention = sizes.solve(config, kind)?;
    earlier.insert(kind == Kind::Sliding, attention.kv_heads);
    attention.sinks = inventory.has_sinks(parent);
    if kind == Kind::Sliding {
        let window = config.optional_count("sliding_window").ok().flatten();
        attention.window =
            Some(window.ok_or("sliding attention, but config.json has no `sliding_window`")?);
    }
    Ok(attention)
}

/// Combined projections of queries, keys and values.
const FUSED: [&str; 6] = [
    "qkv_proj",
    "query_key_value",
    "Wqkv",
    "W_pack",
    "c_attn",
    "wqkv",
];

/// Projections of attention's output.
const OUTPUTS: [&str; 5] = ["o_proj", "out_proj", "dense", "c_proj", "wo"];

/// Parts of a layer that mix positions but are not attention.
const MIXERS: [&str; 8] = [
    "linear_attn",
    "mixer",
    "mamba",
    "ssm",
    "conv",
    "short_conv",
    "temporal_block",
    "time_mix",
];

/// Why no attention kernel can compute it, if the configuration shows a reason.
fn by_hand(config: &Config) -> Option<&'static str> {
    if config
        .number("attn_logit_softcapping")
        .is_some_and(|cap| cap > 0.0)
    {
        return Some(
            "attention whose scores are capped, which MLX's kernel does not support and which is not probed",
        );
    }
    if config.text("position_embedding_type") == Some("alibi") {
        return Some("attention with ALiBi, an array mask that is not probed");
    }
    None
}

/// The sizes from a layer's tensors.
struct Sizes {
    /// Outputs of the queries, or of queries, keys and values.
    n: usize,
    fused: bool,
    keys: Option<usize>,
    values: Option<usize>,
    /// Values that the output projection accepts.
    summed: usize,
    /// Length of the query norm.
    norm: Option<usize>,
    /// Key heads of an earlier layer of the same kind.
    earlier: Option<usize>,
}

impl Sizes {
    fn solve(&self, config: &Config, kind: Kind) -> std::result::Result<Attention, String> {
        let heads = config.counts(&HEADS);
        let mut dims: Vec<usize> = self
            .norm
            .filter(|&norm| norm < self.n)
            .into_iter()
            .collect();
        if kind == Kind::Full {
            dims.extend(config.counts(&["global_head_dim"]));
        }
        dims.extend(config.counts(&["head_dim", "swa_head_dim", "kv_channels"]));
        for hidden in config.counts(&HIDDEN) {
            dims.extend(heads.iter().map(|heads| hidden / heads));
        }
        let mut all_heads = heads;
        all_heads
            .extend(config.counts(&["swa_num_attention_heads", "num_attention_heads_per_layer"]));
        for dim in dims.into_iter().filter(|&dim| dim > 0) {
            if let Some(attention) = self.with(config, &all_heads, dim) {
                return Ok(attention);
            }
        }
        let known = |values: Option<usize>| values.map_or("none".to_owned(), |n| n.to_string());
        Err(format!(
            "its queries have {} outputs, keys {}, values {}, and {} values are summed up, which do not match any head counts in \
             config.json: not probed",
            self.n,
            known(self.keys),
            known(self.values),
            self.summed
        ))
    }

    fn with(&self, config: &Config, known: &[usize], head_dim: usize) -> Option<Attention> {
        let attention = |heads: usize, kv_heads: usize, value_dim: usize| Attention {
            heads,
            kv_heads,
            head_dim,
            value_dim,
            sinks: false,
            window: None,
            layers: 0,
        };
        let whole = |n: usize, part: usize| (part > 0 && n.is_multiple_of(part)).then(|| n / part);
        let of_keys = config
            .counts(&KV_HEADS)
            .into_iter()
            .chain(config.counts(&["num_global_key_value_heads", "swa_num_key_value_heads"]));
        if self.fused {
            let heads = whole(self.summed, head_dim).filter(|heads| known.contains(heads))?;
            let kv_heads = whole(self.n.checked_sub(self.summed)?, head_dim.checked_mul(2)?)?;
            let grouped = heads.is_multiple_of(kv_heads.max(1)) && kv_heads > 0;
            return grouped.then(|| attention(heads, kv_heads, head_dim));
        }
        let shared = !config.counts(&["num_kv_shared_layers"]).is_empty();
        // With a gate, q has two numbers for each value of a head.
        let width = [Some(head_dim), head_dim.checked_mul(2)];
        width.into_iter().flatten().find_map(|width| {
            let heads = whole(self.n, width).filter(|heads| known.contains(heads))?;
            let value_dim = whole(self.summed, heads)?;
            if value_dim != head_dim && !config.counts(&["v_head_dim"]).contains(&value_dim) {
                return None;
            }
            let kv_heads = match self.keys {
                Some(keys) => whole(keys, head_dim)?,
                None if shared => self.earlier.or_else(|| of_keys.clone().next())?,
                None => return None,
            };
            let values = match self.values {
                Some(values) => Some(values) == kv_heads.checked_mul(value_dim),
                // Values may be the same as the keys.
                None => shared || config.flag("attention_k_eq_v"),
            };
            let grouped = kv_heads > 0 && heads.is_multiple_of(kv_heads);
            (values && grouped).then(|| attention(heads, kv_heads, value_dim))
        })
    }
}
