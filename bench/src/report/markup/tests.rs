use super::*;

#[test]
fn what_would_be_markup_is_text() {
    assert_eq!(escape("plain, ünï"), "plain, ünï");
    assert_eq!(
        escape("<script>alert(\"1\" && '2')</script>"),
        "&lt;script&gt;alert(&quot;1&quot; &amp;&amp; &#39;2&#39;)&lt;/script&gt;"
    );
    assert_eq!(escape("a\0b\u{1b}[1mc\nd"), "a\u{fffd}b\u{fffd}[1mc\nd");
}

#[test]
fn json_cannot_end_its_element() {
    let data = ["</script><script>alert(1)</script>", "<!--", "a\"b"];
    let text = json(&data);
    assert!(!text.contains('<'), "{text}");
    assert_eq!(serde_json::from_str::<Vec<String>>(&text).unwrap(), data);
    assert_eq!(json(&[1.5, f64::NAN, f64::INFINITY]), "[1.5,null,null]");
}
