//! The types of features that are not built. They have no values, so none of their functions is ever called.

use std::io::IoSlice;

use crate::{Room, UpgradeError};

/// The TLS of a build without the feature `tls`.
#[cfg(not(feature = "tls"))]
#[derive(Debug)]
pub(crate) enum Tls {}

#[cfg(not(feature = "tls"))]
impl Tls {
    pub(crate) fn is_handshaking(&self) -> bool {
        match *self {}
    }

    pub(crate) fn has_ended(&self) -> bool {
        match *self {}
    }

    pub(crate) fn session(&self) -> Option<crate::Session> {
        match *self {}
    }

    pub(crate) fn encrypt(&mut self, _plain: &[IoSlice<'_>]) -> Result<(), UpgradeError> {
        match *self {}
    }

    pub(crate) fn shake_hands(&mut self, _wire: &mut &[u8]) -> Result<(), UpgradeError> {
        match *self {}
    }

    pub(crate) fn decrypt(
        &mut self,
        _wire: &mut &[u8],
        _room: &mut Room<'_>,
    ) -> Result<(), UpgradeError> {
        match *self {}
    }

    pub(crate) fn end(&mut self) {
        match *self {}
    }

    pub(crate) fn drain(&mut self, _wire: &mut Vec<u8>) {
        match *self {}
    }
}

/// The compression of a build without the feature `compression`.
#[cfg(not(feature = "compression"))]
#[derive(Debug)]
pub(crate) enum Compression {}

#[cfg(not(feature = "compression"))]
impl Compression {
    pub(crate) fn compress(
        &mut self,
        _plain: &[IoSlice<'_>],
        _out: &mut Vec<u8>,
    ) -> Result<(), UpgradeError> {
        match *self {}
    }

    pub(crate) fn decompress(
        &mut self,
        _input: &mut &[u8],
        _room: &mut Room<'_>,
    ) -> Result<(), UpgradeError> {
        match *self {}
    }

    pub(crate) fn has_ended(&self) -> bool {
        match *self {}
    }
}
