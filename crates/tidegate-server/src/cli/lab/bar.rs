//! A progress bar on a terminal's standard error.

use std::io::{self, Write as _};

/// Cells of the bar.
const WIDTH: u64 = 30;

/// One line that is drawn over and over, and gone when dropped.
pub(super) struct Bar {
    name: &'static str,
    drawn: Option<u64>,
}

impl Bar {
    /// Draws nothing yet.
    pub(super) const fn new(name: &'static str) -> Self {
        Self { name, drawn: None }
    }

    /// Draws how far it is; only when that shows.
    pub(super) fn show(&mut self, done: u64, total: u64) {
        let percent = percent(done, total);
        if self.drawn != Some(percent) {
            self.drawn = Some(percent);
            write(&format!("\r\x1b[2K{}", line(self.name, percent)));
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            write("\r\x1b[2K");
        }
    }
}

fn percent(done: u64, total: u64) -> u64 {
    done.saturating_mul(100).checked_div(total).unwrap_or(100).min(100)
}

fn line(name: &str, percent: u64) -> String {
    let full = (percent * WIDTH / 100) as usize;
    format!("[{}{}] {percent:3} % {name}", "#".repeat(full), ".".repeat(WIDTH as usize - full))
}

/// A bar that cannot be drawn is not worth a word.
fn write(text: &str) {
    let mut err = io::stderr().lock();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_shows_the_share_that_is_done() {
        for (done, total, expected) in [
            (0, 4, "[..............................]   0 % x"),
            (2, 4, "[###############...............]  50 % x"),
            (4, 4, "[##############################] 100 % x"),
            (9, 4, "[##############################] 100 % x"),
            (1, 0, "[##############################] 100 % x"),
        ] {
            assert_eq!(line("x", percent(done, total)), expected, "{done} of {total}");
        }
    }
}
