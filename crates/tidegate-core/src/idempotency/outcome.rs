//! What an execution's end means for its record.

/// The three ends of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A result: recorded and replayed.
    Final,
    /// Nothing happened: released, so that a retry may execute.
    NotApplied,
    /// Nobody knows: the record stays `PROCESSING`, and the table decides when the lease is over.
    Unknown,
}

impl Outcome {
    /// What a response's status says, unless the upstream said `Tidegate-Outcome: retryable`.
    ///
    /// 401, 407, 425 and 429 are refusals before the work. 408 and 5xx say that something went
    /// wrong on the way, not how far it came. Anything outside 200 to 599 is no answer to rely on.
    pub const fn of_status(status: u16) -> Self {
        match status {
            401 | 407 | 425 | 429 => Self::NotApplied,
            408 => Self::Unknown,
            200..=499 => Self::Final,
            _ => Self::Unknown,
        }
    }

    /// When there is no response: only a request of which no byte was written is known to have had
    /// no effect.
    pub const fn of_failure(sent: bool) -> Self {
        if sent { Self::Unknown } else { Self::NotApplied }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_one_outcome_each() {
        for (status, expected) in [
            (0, Outcome::Unknown),
            (101, Outcome::Unknown),
            (199, Outcome::Unknown),
            (200, Outcome::Final),
            (303, Outcome::Final),
            (400, Outcome::Final),
            (401, Outcome::NotApplied),
            (402, Outcome::Final),
            (407, Outcome::NotApplied),
            (408, Outcome::Unknown),
            (409, Outcome::Final),
            (424, Outcome::Final),
            (425, Outcome::NotApplied),
            (429, Outcome::NotApplied),
            (499, Outcome::Final),
            (500, Outcome::Unknown),
            (503, Outcome::Unknown),
            (600, Outcome::Unknown),
        ] {
            assert_eq!(Outcome::of_status(status), expected, "{status}");
        }
        assert_eq!(Outcome::of_failure(true), Outcome::Unknown);
        assert_eq!(Outcome::of_failure(false), Outcome::NotApplied);
    }
}
