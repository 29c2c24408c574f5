//! Tokens of HTTP.

/// RFC 9110 section 5.6.2: what names of header fields, cookies and methods are made of.
pub(crate) fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}
