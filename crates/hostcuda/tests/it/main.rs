//! The cpu device from outside: what it refuses, what it writes, and a corpus of kernels that is
//! built by the host compiler and compared with torch.

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
