//! tidegate-lab
