//! Reads small files that others write, without ever waiting for one.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::Path,
};

/// Bytes of a certificate's file at most: room for all authorities of a system.
pub const LARGEST_PEM: u64 = 4 << 20;

/// A file's content, `most` bytes at most. Opening a pipe would wait for somebody to write to it, so only a file counts.
pub fn read_file(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut bytes = Vec::new();
    let read = File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if read as u64 > most {
        return Err(io::Error::other(format!("it is larger than {most} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_that_are_not_too_large_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let (file, pipe) = (folder.path().join("file"), folder.path().join("pipe"));
        fs::write(&file, "12345").unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let why = |path: &Path, most| read_file(path, most).map_err(|error| error.to_string());
        assert_eq!(why(&file, 5), Ok(b"12345".to_vec()));
        assert_eq!(why(&file, 4), Err("it is larger than 4 bytes".to_owned()));
        assert_eq!(why(&pipe, 5), Err("it is not a file".to_owned()));
        assert_eq!(why(folder.path(), 5), Err("it is not a file".to_owned()));
        assert!(why(&folder.path().join("none"), 5).unwrap_err().contains("No such file"));
    }
}
