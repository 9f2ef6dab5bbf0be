//! Verification of the stored checksums.

use rayon::prelude::*;
use sha2::{Digest, Sha256};

use crate::{Bitcode, Error, Library, Result};

/// The result of [`Library::verify`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verification {
    /// Functions whose checksum is right.
    pub verified: u32,
    /// Functions without a stored checksum, or without bitcode.
    pub unhashed: u32,
    /// Bytes hashed; bitcode that functions share counts once.
    pub bytes: u64,
    /// Functions whose checksum is wrong: their positions in the list, ascending.
    pub mismatches: Vec<u32>,
}

impl Bitcode<'_> {
    /// The SHA-256 of the bytes in the file.
    pub fn sha256(&self) -> [u8; 32] {
        Sha256::digest(self.bytes).into()
    }
}

/// A function's module and its expected checksum. Small, because a hostile file can have many.
struct Entry<'a> {
    bitcode: Bitcode<'a>,
    expected: &'a [u8; 32],
    index: u32,
    wrong: bool,
}

impl Library<'_> {
    /// Hashes every function's bitcode on rayon's threads and compares it with the stored SHA-256.
    ///
    /// # Errors
    /// If a function cannot be read, or different modules overlap so much that hashing them all would take more than
    /// the bitcode section's size ([`Error::Overlap`]). A wrong checksum is not an error but an entry in the result.
    pub fn verify(&self) -> Result<Verification> {
        let hashed = |function: &crate::Function<'_>| {
            function.bitcode.is_some() && function.sha256.is_some()
        };
        let count = self
            .functions()
            .filter(|function| function.as_ref().is_ok_and(hashed))
            .count();
        let mut entries = Vec::with_capacity(count);
        for function in self.functions() {
            let function = function?;
            if let (Some(bitcode), Some(expected)) = (function.bitcode, function.sha256) {
                entries.push(Entry {
                    bitcode,
                    expected,
                    index: function.index,
                    wrong: false,
                });
            }
        }
        entries.sort_unstable_by_key(|entry| (entry.bitcode.offset, entry.bitcode.bytes.len()));
        let available = self.header().bitcode.size;
        let mut bytes = 0;
        for module in entries.chunk_by(same_module) {
            bytes += module[0].bitcode.bytes.len() as u64;
            if bytes > available {
                return Err(Error::Overlap {
                    what: "bitcode",
                    claimed: bytes,
                    available,
                });
            }
        }
        entries.par_chunk_by_mut(same_module).for_each(|module| {
            let found = module[0].bitcode.sha256();
            for entry in module {
                entry.wrong = *entry.expected != found;
            }
        });
        let wrong = entries.iter().filter(|entry| entry.wrong);
        let mut mismatches = Vec::with_capacity(wrong.clone().count());
        mismatches.extend(wrong.map(|entry| entry.index));
        mismatches.sort_unstable();
        Ok(Verification {
            verified: (entries.len() - mismatches.len()) as u32,
            unhashed: self.len() - entries.len() as u32,
            bytes,
            mismatches,
        })
    }
}

fn same_module(left: &Entry<'_>, right: &Entry<'_>) -> bool {
    left.bitcode.offset == right.bitcode.offset
        && left.bitcode.bytes.len() == right.bitcode.bytes.len()
}
