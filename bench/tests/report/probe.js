// Runs in the page, after the page's own scripts. Its value is a promise of its findings.
(() => {
  // The figures of charts have the same form as those of the program: see unit.rs.
  const shown = [
    ["ns", 850, "850 ns"],
    ["ns", 1234567, "1.23 ms"],
    ["ns", 2.5e9, "2.5 s"],
    ["messages/s", 231481.4, "231,481/s"],
    ["messages", 0, "0"],
    ["messages", 5e9, "5,000,000,000"],
    ["bytes", 2.25e12, "2.25 TB"],
    ["bytes", 999.7, "1 kB"],
    ["bytes/s", 104166600, "104 MB/s"],
    ["cores", 1.337, "1.34 cores"],
    ["s", 0.25, "250 ms"],
    ["s", 200, "3 min 20 s"],
    ["s", 43200, "12 h"],
    ["s", 864000, "10 days"],
  ].map(([unit, value, text]) => [show({ unit }, value), text]);
  const ticks = [
    ["messages/s", 1500000, "1.5 M"],
    ["s", 150, "2:30 min"],
    ["s", 5400, "1:30 h"],
  ].map(([unit, value, text]) => [tick({ unit }, value), text]);
  const percentiles = [[0.5, "50 %"], [0.75, "75 %"], [0.99999, "99.999 %"]]
    .map(([fraction, text]) => [percentile(-Math.log10(1 - fraction)), text]);
  const ranges = [
    [range({ scale: "log", unit: "ns" }, [180e3, 4.2e6, 0, null]), [100e3, 5e6]],
    [logTicks(100e3, 5e6).filter((tick) => tick >= 100e3 && tick <= 5e6), [100e3, 200e3, 500e3, 1e6, 2e6, 5e6]],
    [range({ scale: "linear", unit: "messages" }, [null])[0], 0],
    [range({ scale: "linear", unit: "s" }, [3, 67]), [0, 67]],
  ];
  const dates = [
    [date(0), "1970-01-01 00:00 UTC"],
    [date(951782399000), "2000-02-28 23:59 UTC"],
    [date(951782400000), "2000-02-29 00:00 UTC"],
    [date(1735689599000), "2024-12-31 23:59 UTC"],
  ];
  // The words of a command in a form that can be pasted.
  const words = [
    [quoted("--rate=5e4"), "--rate=5e4"],
    [quoted("p99<5ms,lost=0"), "'p99<5ms,lost=0'"],
    [quoted("it's"), "'it'\\''s'"],
    [quoted(""), "''"],
  ];
  const wrong = [...shown, ...ticks, ...percentiles, ...ranges, ...dates, ...words]
    .filter(([found, expected]) => JSON.stringify(found) !== JSON.stringify(expected));

  // The texts of a figure with their boxes: the texts of its canvas, or those of a comparison's bars.
  const textsOf = (figure) => {
    if (figure.plot) return figure.plot.ctx.drawn.texts;
    return [...figure.querySelectorAll(".bar-name > *")].map((element) => ({
      text: element.textContent,
      box: element.getBoundingClientRect(),
    }));
  };
  const frameOf = (figure) => {
    if (!figure.plot) return figure.getBoundingClientRect();
    const { width, height } = figure.plot.ctx.canvas;
    return { left: 0, top: 0, right: width, bottom: height, width: width / devicePixelRatio };
  };
  // The text of a chart under the pointer, for each of its points.
  const tooltipsOf = (figure) => {
    if (!figure.plot) return [...figure.querySelectorAll("[title]")].map((element) => element.title);
    const { plot } = figure;
    const place = plot.over.getBoundingClientRect();
    return plot.data[0].map((x) => {
      plot.setCursor({ left: plot.valToPos(x, "x"), top: place.height / 2 });
      const tooltip = plot.over.querySelector(".tooltip");
      return tooltip.hidden ? "" : tooltip.textContent;
    }).filter((text) => text.includes(": "));
  };

  const look = () => {
    const outside = [];
    const overlaps = [];
    const found = [...document.querySelectorAll("figure.chart")].map((figure) => {
      const frame = frameOf(figure);
      const texts = textsOf(figure);
      for (const { text, box } of texts) {
        if (box.left < frame.left - 1 || box.right > frame.right + 1
            || box.top < frame.top - 1 || box.bottom > frame.bottom + 1) {
          outside.push(`${figure.id}: ${text}`);
        }
      }
      for (let one = 0; one < texts.length; one++) {
        for (let other = one + 1; other < texts.length; other++) {
          const [a, b] = [texts[one].box, texts[other].box];
          if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3) {
            overlaps.push(`${figure.id}: ${texts[one].text} / ${texts[other].text}`);
          }
        }
      }
      const { plot } = figure;
      return {
        id: figure.id,
        title: figure.querySelector("h3").textContent,
        width: frame.width,
        shapes: plot ? plot.ctx.drawn.shapes : figure.querySelectorAll(".bars > *").length,
        legend: [...figure.querySelectorAll(".u-legend .u-label")].map((label) => label.textContent),
        texts: texts.map(({ text }) => text),
        tooltips: tooltipsOf(figure),
      };
    });
    return {
      dark: matchMedia("(prefers-color-scheme: dark)").matches,
      ground: getComputedStyle(document.body).backgroundColor,
      ink: getComputedStyle(document.body).color,
      title: document.title,
      text: document.body.innerText,
      images: document.images.length,
      resources: performance.getEntriesByType("resource").length,
      overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
      height: document.documentElement.scrollHeight,
      charts: found, outside, overlaps, wrong,
    };
  };
  // The charts are drawn again when they have their sizes, in the next frame.
  const frame = () => new Promise(requestAnimationFrame);
  return frame().then(frame).then(look);
})()
