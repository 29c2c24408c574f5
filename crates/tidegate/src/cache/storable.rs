//! Which answers may be kept as the last good one, and for whom.

use std::time::Duration;

use http::header::{
    AGE, AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, COOKIE, RANGE, SET_COOKIE, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, response};
use smallvec::SmallVec;

use crate::respond;

/// The most request headers that an answer may vary with.
const MAX_VARY: usize = 16;

/// Why an answer is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotStored {
    /// Neither GET nor HEAD, or GET with a range.
    #[error("only answers to GET and HEAD for a whole resource are kept")]
    Method,
    /// Not 200, 203 or 204.
    #[error("only answers with status 200, 203 or 204 are good ones")]
    Status,
    /// `Authorization` and no subject.
    #[error(
        "the request carries Authorization, and its resource has no subject that says whose the answer is: \
         declare `subject` on the resource"
    )]
    Authorization,
    /// `Cookie`, no subject, and no word that the answer does not depend on it.
    #[error(
        "the request carries a cookie, which may say whose the answer is: declare `subject` on the resource, or have          the answer say `Vary: Cookie` or `Cache-Control: public`"
    )]
    Cookie,
    /// `Set-Cookie`.
    #[error("the answer sets a cookie")]
    SetCookie,
    /// `Cache-Control: no-store`, in the answer or the request.
    #[error("Cache-Control says no-store")]
    NoStore,
    /// `Cache-Control: private`.
    #[error("Cache-Control says private")]
    Private,
    /// `Cache-Control: no-cache`, or `must-revalidate` and the like without a lifetime.
    #[error("Cache-Control says that the answer must not be used again without asking")]
    Revalidate,
    /// `Cache-Control` that cannot be read.
    #[error("Cache-Control cannot be read")]
    Unreadable,
    /// `Vary: *`, or too many names.
    #[error("the answer varies with more than 16 headers, or with everything")]
    Vary,
    /// Larger than the cache takes.
    #[error("the answer is larger than {limit} bytes")]
    TooLarge {
        /// Bytes.
        limit: usize,
    },
}

/// An answer that may be kept, and for which requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storable {
    /// To HEAD: its `Content-Length` is the origin's word, for there is no body to count.
    pub(super) head: bool,
    /// Its age when it came, from caches before this one.
    pub(super) received_age: Duration,
    /// The age from which it must not be used without asking; `None` leaves that to the rule.
    pub(super) usable_for: Option<Duration>,
    /// The request's values of the headers that `Vary` names.
    vary: Vec<(HeaderName, Values)>,
}

type Values = SmallVec<[HeaderValue; 1]>;

/// Whether the answer `response` to a request may be kept as the last good one. Asked before its body
/// is collected.
///
/// Kept are answers to GET and HEAD with status 200, 203 or 204. Never kept is what is `private`,
/// `no-store`, `no-cache` or sets a cookie, nor what answers `Authorization` without a subject, nor what
/// answers a cookie without a subject, unless it says `public` or varies with the cookie. An
/// answer that must be revalidated once stale (`must-revalidate`, `proxy-revalidate`, `s-maxage`) is
/// used only while its own lifetime lasts. One variant is kept for each key, and used for requests
/// that agree in the headers that `Vary` names.
pub fn examine(
    method: &Method,
    request: &HeaderMap,
    has_subject: bool,
    response: &response::Parts,
) -> Result<Storable, NotStored> {
    let head = *method == Method::HEAD;
    if !(head || *method == Method::GET) || request.contains_key(RANGE) {
        return Err(NotStored::Method);
    }
    let good = [StatusCode::OK, StatusCode::NON_AUTHORITATIVE_INFORMATION, StatusCode::NO_CONTENT];
    if !good.contains(&response.status) {
        return Err(NotStored::Status);
    }
    if request.contains_key(AUTHORIZATION) && !has_subject {
        return Err(NotStored::Authorization);
    }
    if response.headers.contains_key(SET_COOKIE) {
        return Err(NotStored::SetCookie);
    }
    if Directives::read(request)?.no_store {
        return Err(NotStored::NoStore);
    }
    let directives = Directives::read(&response.headers)?;
    if directives.no_store {
        return Err(NotStored::NoStore);
    }
    if directives.private {
        return Err(NotStored::Private);
    }
    if directives.no_cache {
        return Err(NotStored::Revalidate);
    }
    // RFC 9111, 4.2.4: a stale answer is not for use when one of these is there.
    let usable_for = if directives.revalidate {
        let lifetime = directives.shared_lifetime.or(directives.lifetime).unwrap_or(0);
        Some(Duration::from_secs(lifetime))
            .filter(|span| !span.is_zero())
            .ok_or(NotStored::Revalidate)?
            .into()
    } else {
        None
    };
    let received_age = response.headers.get(AGE).and_then(|age| seconds(age.to_str().ok()?)).unwrap_or(0);
    let vary = vary(request, &response.headers)?;
    // A session's page seldom says that it is one, and would be handed to whoever asks next.
    let told_apart = has_subject || directives.public || vary.iter().any(|(name, _)| *name == COOKIE);
    if request.contains_key(COOKIE) && !told_apart {
        return Err(NotStored::Cookie);
    }
    Ok(Storable { head, received_age: Duration::from_secs(received_age), usable_for, vary })
}

impl Storable {
    /// Whether a request with these headers is answered by it.
    pub(super) fn answers(&self, request: &HeaderMap) -> bool {
        self.vary.iter().all(|(name, values)| request.get_all(name).iter().eq(values))
    }

    /// Bytes.
    pub(super) fn size(&self) -> usize {
        let value = |value: &HeaderValue| value.len() + 32;
        self.vary.iter().map(|(_, values)| values.iter().map(value).sum::<usize>() + 64).sum()
    }
}

/// The headers of an answer that are its own: not those of one connection or of one exchange.
pub(super) fn kept_headers(headers: &HeaderMap, head: bool) -> HeaderMap {
    const HOP_BY_HOP: [&str; 8] = [
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    // RFC 9110, 7.6.1: what `Connection` names is for one hop as well.
    let named: Vec<String> = list(headers, &CONNECTION).map(str::to_ascii_lowercase).collect();
    let own = |name: &HeaderName| {
        let text = name.as_str();
        !(HOP_BY_HOP.contains(&text)
            || named.iter().any(|hop| hop == text)
            || text.starts_with("tidegate-")
            || *name == AGE
            || *name == crate::context::X_REQUEST_ID
            || *name == respond::IDEMPOTENT_REPLAYED
            || respond::of_one_answer(name)
            || (*name == CONTENT_LENGTH && !head))
    };
    headers.iter().filter(|(name, _)| own(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn vary(request: &HeaderMap, response: &HeaderMap) -> Result<Vec<(HeaderName, Values)>, NotStored> {
    let readable = response.get_all(VARY).iter().all(|line| line.to_str().is_ok());
    if !readable {
        return Err(NotStored::Vary);
    }
    let mut vary: Vec<(HeaderName, Values)> = Vec::new();
    for name in list(response, &VARY) {
        // `*` is no token that names a header, so it ends here as well.
        let name = match name {
            "*" => return Err(NotStored::Vary),
            name => HeaderName::from_bytes(name.as_bytes()).map_err(|_| NotStored::Vary)?,
        };
        if vary.iter().any(|(known, _)| *known == name) {
            continue;
        }
        if vary.len() == MAX_VARY {
            return Err(NotStored::Vary);
        }
        let values = request.get_all(&name).iter().cloned().collect();
        vary.push((name, values));
    }
    Ok(vary)
}

/// The members of a comma-separated header without parameters; lines that are not text are left out.
fn list<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(name).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim).filter(|member| !member.is_empty())
}

/// The directives of `Cache-Control` that matter here (RFC 9111, 5.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Directives {
    no_store: bool,
    /// With field names too: those could not be told apart when the answer is used.
    private: bool,
    public: bool,
    no_cache: bool,
    revalidate: bool,
    lifetime: Option<u64>,
    shared_lifetime: Option<u64>,
}

impl Directives {
    fn read(headers: &HeaderMap) -> Result<Self, NotStored> {
        let mut found = Self::default();
        for line in headers.get_all(CACHE_CONTROL) {
            let line = line.to_str().map_err(|_| NotStored::Unreadable)?;
            for directive in split_unquoted(line).ok_or(NotStored::Unreadable)? {
                let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
                let value = value.trim().trim_matches('"');
                match name.trim().to_ascii_lowercase().as_str() {
                    "no-store" => found.no_store = true,
                    "private" => found.private = true,
                    "public" => found.public = true,
                    "no-cache" => found.no_cache = true,
                    "must-revalidate" | "proxy-revalidate" => found.revalidate = true,
                    // A lifetime that cannot be read counts as stale (RFC 9111, 4.2.1).
                    "max-age" => found.lifetime = Some(seconds(value).unwrap_or(0)),
                    "s-maxage" => {
                        found.revalidate = true;
                        found.shared_lifetime = Some(seconds(value).unwrap_or(0));
                    }
                    _ => {}
                }
            }
        }
        Ok(found)
    }
}

/// The members of a list, of which quoted strings may contain commas; `None` if a quote is left open,
/// because then nobody can say what it was meant to hide.
fn split_unquoted(line: &str) -> Option<Vec<&str>> {
    let (mut quoted, mut escaped) = (false, false);
    let members = line
        .split(|character| {
            let plain = !std::mem::take(&mut escaped);
            match character {
                '\\' if quoted && plain => escaped = true,
                '"' if plain => quoted = !quoted,
                ',' => return !quoted,
                _ => {}
            }
            false
        })
        .collect();
    (!quoted).then_some(members)
}

/// `delta-seconds`; what is too large counts as the largest (RFC 9111, 1.2.2).
fn seconds(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}
