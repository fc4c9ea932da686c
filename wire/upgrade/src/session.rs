//! [`Session`]: what both sides of TLS agreed on.

/// The parameters that both sides agreed on, in the numbers of the standard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// 0x0303 for TLS 1.2, 0x0304 for TLS 1.3.
    pub version: u16,
    /// The cipher suite.
    pub cipher_suite: u16,
    /// The peer's certificate as it came, or empty if the peer sent none.
    pub certificate: Vec<u8>,
}
