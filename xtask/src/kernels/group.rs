//! Groups kernel names by family, so that a difference of a thousand names is one line.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Group {
    /// The part before the type in the names: `affine_qmv_wide`.
    pub family: String,
    /// The number of names.
    pub count: usize,
    /// The parameters that distinguish these names from the family's other names, with their values. If there are no
    /// others: all parameters that vary.
    pub parameters: BTreeMap<String, Vec<String>>,
}

/// A name such as `affine_qmv_wide_float_gs_64_b_4_nv_6_kl_8_batch_0`, split into parts.
struct Parts<'a> {
    family: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

/// Types in names; a longer name comes before its prefix.
const TYPES: [&str; 16] = [
    "bfloat16",
    "bfloat",
    "float16",
    "float32",
    "float",
    "half",
    "complex64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
    "bool",
];

/// Groups `names`; `others` are the names to compare with.
pub(super) fn groups<'a>(
    names: impl IntoIterator<Item = &'a String>,
    others: &BTreeSet<String>,
) -> Vec<Group> {
    let mut families: BTreeMap<&str, Vec<Parts<'_>>> = BTreeMap::new();
    for name in names {
        let parts = parts(name);
        families.entry(parts.family).or_default().push(parts);
    }
    let mut known: BTreeMap<&str, Vec<Parts<'_>>> = BTreeMap::new();
    for name in others {
        let parts = parts(name);
        if families.contains_key(parts.family) {
            known.entry(parts.family).or_default().push(parts);
        }
    }
    let group = |(family, members): (&&str, &Vec<Parts<'_>>)| {
        let own = values(members);
        let parameters = match known.get(family).map(|others| values(others)) {
            None => own.into_iter().filter(|(_, own)| own.len() > 1).collect(),
            Some(others) => own
                .into_iter()
                .filter(|(key, own)| others.get(key).is_none_or(|others| own.is_disjoint(others)))
                .collect::<BTreeMap<_, _>>(),
        };
        Group {
            family: (*family).to_owned(),
            count: members.len(),
            parameters: parameters
                .into_iter()
                .map(|(key, values)| (key.to_owned(), sorted(&values)))
                .collect(),
        }
    };
    families.iter().map(group).collect()
}

fn values<'a>(members: &[Parts<'a>]) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let mut values: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (key, value) in members.iter().flat_map(|member| &member.parameters) {
        values.entry(key).or_default().insert(value);
    }
    values
}

/// Sorted as numbers if they are numbers.
fn sorted(values: &BTreeSet<&str>) -> Vec<String> {
    let mut values: Vec<_> = values.iter().map(|&value| value.to_owned()).collect();
    values.sort_by_key(|value| value.parse::<u64>().ok());
    values
}

fn parts(name: &str) -> Parts<'_> {
    let typed = (1..name.len()).find(|&at| {
        name.get(at..)
            .is_some_and(|rest| TYPES.iter().any(|word| rest.starts_with(word)))
    });
    // Without a type, only numbers vary.
    let end = typed
        .or_else(|| name.find(|c: char| c.is_ascii_digit()))
        .filter(|&end| end > 0)
        .unwrap_or(name.len());
    let (family, rest) = name.split_at(end);
    Parts {
        family: family.trim_end_matches('_'),
        parameters: parameters(rest),
    }
}

/// `gs_64`, `bm32` and `alN_true`; anything else is skipped.
fn parameters(rest: &str) -> Vec<(&str, &str)> {
    let is_value = |word: &str| {
        matches!(word, "true" | "false")
            || (!word.is_empty() && word.bytes().all(|b| b.is_ascii_digit()))
    };
    let words: Vec<&str> = rest.split('_').collect();
    let mut found = Vec::new();
    for (i, &word) in words.iter().enumerate() {
        let is_key = word.bytes().all(|b| b.is_ascii_alphabetic()) && !is_value(word);
        match words.get(i + 1) {
            Some(&value) if is_key && !word.is_empty() && is_value(value) => {
                found.push((word, value));
            }
            _ if TYPES.iter().any(|name| word.starts_with(name)) => {}
            _ => {
                let digits = word.find(|c: char| c.is_ascii_digit()).unwrap_or(0);
                let (key, value) = word.split_at(digits);
                if !key.is_empty() && is_value(value) {
                    found.push((key, value));
                }
            }
        }
    }
    found
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", thousands(self.count as u64), self.family)?;
        for (i, (key, values)) in self.parameters.iter().enumerate() {
            let separator = if i == 0 { " " } else { ", " };
            write!(f, "{separator}{key} {}", runs(values))?;
        }
        Ok(())
    }
}

/// Values, with runs of three or more numbers as `2..5`.
fn runs(values: &[String]) -> String {
    let number = |i: usize| {
        values
            .get(i)
            .and_then(|value: &String| value.parse::<u64>().ok())
    };
    let mut shown = Vec::new();
    let mut i = 0;
    while i < values.len() {
        let mut end = i;
        while number(end).is_some_and(|n| number(end + 1) == Some(n + 1)) {
            end += 1;
        }
        if end >= i + 2 {
            shown.push(format!("{}..{}", values[i], values[end]));
            i = end + 1;
        } else {
            shown.push(values[i].clone());
            i += 1;
        }
    }
    shown.join(" ")
}

/// Formats `1260` as `1,260`.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(tiles: std::ops::RangeInclusive<u32>) -> BTreeSet<String> {
        let name = |tile, bits, batch| {
            format!("affine_qmv_wide_float16_t_gs_64_b_{bits}_nv_{tile}_kl_8_batch_{batch}")
        };
        tiles
            .flat_map(|tile| [2, 4].map(|bits| [0, 1].map(|batch| name(tile, bits, batch))))
            .flatten()
            .collect()
    }

    fn shown(names: &BTreeSet<String>, others: &BTreeSet<String>) -> Vec<String> {
        let groups = groups(names.difference(others), others);
        groups.iter().map(Group::to_string).collect()
    }

    #[test]
    fn only_the_parameter_that_sets_names_apart_is_shown() {
        assert_eq!(
            shown(&names(2..=8), &names(2..=5)),
            ["12 affine_qmv_wide nv 6..8"]
        );
        assert_eq!(shown(&names(2..=5), &names(2..=8)), [""; 0]);
    }

    #[test]
    fn a_new_family_shows_all_that_varies() {
        assert_eq!(
            shown(&names(2..=3), &BTreeSet::new()),
            ["8 affine_qmv_wide b 2 4, batch 0 1, nv 2 3"]
        );
    }

    #[test]
    fn other_names_fall_into_families_too() {
        let set = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let all = set(&[
            "steel_gemm_fused_nt_float16_float16_bm64_bn32_wm2",
            "steel_gemm_fused_nt_float16_float16_bm32_bn32_wm2",
            "affine_qmm_t_float_gs_32_b_2_alN_true_batch_0",
            "affine_qmm_t_float_gs_32_b_2_alN_false_batch_0",
            "gn2_copyfloat32int8",
            "fence_wait",
            "float",
        ]);
        assert_eq!(
            shown(&all, &BTreeSet::new()),
            [
                "2 affine_qmm_t alN false true",
                "1 fence_wait",
                "1 float",
                "1 gn2_copy",
                "2 steel_gemm_fused_nt bm 32 64"
            ]
        );
    }

    #[test]
    fn numbers_are_easy_to_read() {
        assert_eq!(
            [0, 378, 1260, 1_000_000].map(thousands),
            ["0", "378", "1,260", "1,000,000"]
        );
    }
}
