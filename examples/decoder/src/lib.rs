//! The parts of the decoder of `main.rs`: a reader of GGUF files, the weights in MLX's layout, the model, its text, and
//! guesses by look-up.

pub mod folder;
pub mod gguf;
pub mod lookup;
pub mod model;
pub mod text;
pub mod weights;
