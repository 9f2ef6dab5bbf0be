//! Where a difference starts: blocks beside the same tokens one by one, operation by operation.

use mlx_overlay::Stream;
use serde::{Deserialize, Serialize};

use super::speculative::Block;
use super::transformer::{Cache, Transformer};
use crate::Result;
use crate::values;

/// The first operation whose rows in a block have other bits than alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The position of the row.
    pub position: usize,
    /// Rows of the block.
    pub rows: usize,
    /// The operation.
    pub operation: String,
    /// Elements of the row whose bits differ.
    pub differing: usize,
    /// Elements of the row.
    pub elements: usize,
}

/// The elements of one operation, row by row.
type Seen = Vec<(String, Vec<u32>)>;

/// Replays the blocks of a run and the same tokens one by one, and gives the first difference in
/// any operation. Tokens can agree long after that.
///
/// # Errors
/// MLX's.
pub fn origin(
    model: &Transformer,
    stream: &Stream,
    prompt: &[u32],
    blocks: &[Block],
) -> Result<Option<Origin>> {
    let longest = blocks.iter().map(|b| b.start + b.tokens.len()).max();
    let capacity = longest.unwrap_or(prompt.len()).max(prompt.len());
    let mut chain = Cache::new(model, 1, capacity);
    let mut block_cache = Cache::new(model, 1, capacity);
    for token in prompt {
        pass(model, stream, &[*token], &mut chain)?;
        pass(model, stream, &[*token], &mut block_cache)?;
    }
    for block in blocks {
        let together = pass(model, stream, &block.tokens, &mut block_cache)?;
        let rows = block.tokens.len();
        for (row, token) in block.tokens.iter().enumerate() {
            let alone = pass(model, stream, &[*token], &mut chain)?;
            for ((operation, alone), (_, together)) in alone.iter().zip(&together) {
                let elements = alone.len();
                let together = &together[row * elements..][..elements];
                let differing = alone.iter().zip(together).filter(|(a, b)| a != b).count();
                if differing > 0 {
                    return Ok(Some(Origin {
                        position: block.start + row,
                        rows,
                        operation: operation.clone(),
                        differing,
                        elements,
                    }));
                }
            }
        }
        let kept = block.start + 1 + block.accepted;
        chain.truncate(kept);
        block_cache.truncate(kept);
    }
    Ok(None)
}

fn pass(model: &Transformer, stream: &Stream, tokens: &[u32], cache: &mut Cache) -> Result<Seen> {
    let mut arrays = Vec::new();
    stream.scope(|| {
        let logits = model.forward(tokens, 1, cache, &mut |name, array| {
            arrays.push((name.to_owned(), array.clone()));
            Ok(())
        })?;
        mlx_overlay::eval([&logits])?;
        arrays
            .iter()
            .map(|(name, array)| Ok((name.clone(), values::bits(array)?)))
            .collect()
    })
}
