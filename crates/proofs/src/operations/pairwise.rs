//! A covering array: few cases in which all pairs of values of two dimensions occur.

use std::collections::BTreeSet;

/// Cases with one value per dimension (numbers below `sizes`) in which every pair of values of two dimensions occurs.
/// The result is deterministic: each case starts with the first pair that is not covered yet; for each further
/// dimension it takes the value that covers most of the rest, and of equal ones the least used.
pub(crate) fn pairwise(sizes: &[usize]) -> Vec<Vec<usize>> {
    let mut left = BTreeSet::new();
    for (a, &size) in sizes.iter().enumerate() {
        for (b, &other) in sizes.iter().enumerate().skip(a + 1) {
            for x in 0..size {
                left.extend((0..other).map(|y| ((a, x), (b, y))));
            }
        }
    }
    let mut used: Vec<Vec<usize>> = sizes.iter().map(|&size| vec![0; size]).collect();
    let mut cases = Vec::new();
    while let Some(&((a, x), (b, y))) = left.first() {
        let mut chosen: Vec<Option<usize>> = vec![None; sizes.len()];
        for (dimension, value) in [(a, x), (b, y)] {
            if let Some(place) = chosen.get_mut(dimension) {
                *place = Some(value);
            }
        }
        for dimension in 0..sizes.len() {
            if chosen.get(dimension).copied().flatten().is_some() {
                continue;
            }
            let size = sizes.get(dimension).copied().unwrap_or(1);
            let best = (0..size).max_by_key(|&value| {
                let covers = known(&chosen)
                    .filter(|&other| left.contains(&ordered((dimension, value), other)))
                    .count();
                let uses = used.get(dimension).and_then(|of| of.get(value));
                (covers, std::cmp::Reverse(uses.copied().unwrap_or(0)))
            });
            if let Some(place) = chosen.get_mut(dimension) {
                *place = best;
            }
        }
        let case: Vec<(usize, usize)> = known(&chosen).collect();
        for (i, &one) in case.iter().enumerate() {
            for &other in case.iter().skip(i + 1) {
                left.remove(&ordered(one, other));
            }
            if let Some(uses) = used.get_mut(one.0).and_then(|of| of.get_mut(one.1)) {
                *uses += 1;
            }
        }
        cases.push(case.into_iter().map(|(_, value)| value).collect());
    }
    cases
}

fn known(chosen: &[Option<usize>]) -> impl Iterator<Item = (usize, usize)> {
    chosen
        .iter()
        .enumerate()
        .filter_map(|(dimension, value)| value.map(|value| (dimension, value)))
}

type Value = (usize, usize);

fn ordered(a: Value, b: Value) -> (Value, Value) {
    if a.0 < b.0 { (a, b) } else { (b, a) }
}

#[cfg(test)]
mod tests {
    use super::pairwise;

    #[test]
    fn every_pair_meets_in_few_cases() {
        let sizes = [3, 24, 9, 8, 4, 2];
        let cases = pairwise(&sizes);
        for a in 0..sizes.len() {
            for b in a + 1..sizes.len() {
                for x in 0..sizes[a] {
                    for y in 0..sizes[b] {
                        assert!(cases.iter().any(|case| case[a] == x && case[b] == y));
                    }
                }
            }
        }
        // At least the 24 x 9 pairs of the two largest dimensions.
        assert!((216..=240).contains(&cases.len()), "{}", cases.len());
    }
}
