//! The engine's tests: invalid input of every kind, kills, comparisons with other programs, and the real MLX.

mod archives;
mod bumps;
mod fixture;
mod kills;
mod locks;
mod manifests;
mod oracles;
mod patches;
mod projects;
mod real;
mod sources;
mod states;
mod trouble;
mod watched;
mod wheels;
