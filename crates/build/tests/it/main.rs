//! Candidates built for real: compilers in the jail, artifacts loaded by Python beside torch.

mod bench;
mod cpu;
mod cuda;
mod rules;
