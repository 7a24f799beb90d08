//! The cpu device from outside: its refusals, its output, and a corpus of kernels that the host
//! compiler builds and torch checks.

#[cfg(test)]
mod corpus;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod programs;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod rewriting;
