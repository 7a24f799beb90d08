//! The committed catalogues and the composer, tried on torch.

mod catalogue;
mod compose;
mod support;
