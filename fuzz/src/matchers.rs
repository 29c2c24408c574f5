//! Routes and conditions beside the plainest way to find and to judge them.

mod conditions;
mod routes;

use super::input::Input;

/// The first byte says which of the two the rest is for.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    if input.below(2) == 0 { routes::run(&mut input) } else { conditions::run(&mut input) }
}
