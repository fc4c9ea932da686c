//! A stored file of keys of version 1. It was not written by this program, but after docs/reference/format.md. A change
//! of the format fails here.

use super::*;

#[test]
fn a_stored_file_of_keys_is_read() {
    let bytes = include_bytes!("version-1.keys");
    let saved = SavedKeys::decode(bytes).expect("a whole file");
    assert_eq!((saved.rule(), saved.boundary()), ("body", Seq(7100)));
    let times = |table: &SavedTable<'_>| {
        let ms = [table.began_unix_ms, table.last_key_unix_ms];
        (table.base, table.end, ms)
    };
    let tables: Vec<_> = saved.tables.iter().map(times).collect();
    let expected = [
        (Seq(7000), Seq(7003), [1_700_000_000_000, 1_700_000_002_000]),
        (Seq(7003), Seq(7050), [1_700_000_003_000, 1_700_000_050_000]),
    ];
    assert_eq!(tables, expected);
    let now = at(100_000);
    let keys = saved.restore(now, plan(1000));
    keys.check();
    assert_eq!(keys.count(), 5);
    let secret = std::array::from_fn(|index| index as u8);
    let hasher = KeyHasher::new(secret);
    let find = |body: &[u8]| {
        let fingerprint = crate::content_key::ContentKey::Body.fingerprint(&hasher, body);
        keys.find(fingerprint.expect("a body is a key"))
    };
    let bodies: [&[u8]; 6] = [b"first", b"second", b"third", b"fourth", b"fifth", b"sixth"];
    let seqs = bodies.map(find).map(|seq| seq.map(|seq| seq.0));
    let expected = [7000, 7001, 7002, 7003, 7049].map(Some);
    assert_eq!((&seqs[..5], seqs[5]), (&expected[..], None));
    // This program writes the same, with the keys in the order of its tables.
    let snapshot = KeysSnapshot::new(&keys, now, "body".to_owned(), Seq(7100));
    let mut snapshot = snapshot.expect("some memory");
    while snapshot.add_newest(&keys, 7) > 0 {}
    let written = encode(&snapshot);
    let sorted = |bytes: &[u8]| {
        let saved = SavedKeys::decode(bytes).expect("a whole file");
        let tables = saved.tables.into_iter().map(|table| {
            let mut keys = table.keys.to_vec();
            keys.sort_unstable();
            (times(&table), keys)
        });
        (saved.secret, tables.collect::<Vec<_>>())
    };
    assert_eq!(sorted(&written), sorted(bytes));
    let head = HEAD_BYTES + "body".len();
    assert_eq!(
        (&written[..head], written.len()),
        (&bytes[..head], bytes.len())
    );
}
