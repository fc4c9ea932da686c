// Runs within a copy of the page and leaves what it sees in an attribute of <body>.
(() => {
  const outside = [];
  const overlaps = [];
  const charts = [...document.querySelectorAll("figure.chart")].map((figure) => {
    const svg = figure.querySelector(".plot svg");
    const frame = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].map((text) => ({
      name: `${figure.id}: ${text.textContent}`,
      box: text.getBoundingClientRect(),
    }));
    for (const { name, box } of texts) {
      if (box.left < frame.left - 1 || box.right > frame.right + 1
          || box.top < frame.top - 1 || box.bottom > frame.bottom + 1) {
        outside.push(name);
      }
    }
    for (let one = 0; one < texts.length; one++) {
      for (let other = one + 1; other < texts.length; other++) {
        const [a, b] = [texts[one].box, texts[other].box];
        if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3) {
          overlaps.push(`${texts[one].name} / ${texts[other].name}`);
        }
      }
    }
    const drawn = [...svg.querySelectorAll("path.line, circle.mark, rect.bar")];
    return {
      id: figure.id,
      title: figure.querySelector("h3").textContent,
      width: frame.width,
      shapes: drawn.filter((shape) => shape.getTotalLength() > 0).length,
      tooltips: svg.querySelectorAll("title").length,
      stroke: drawn.length ? getComputedStyle(drawn[0]).stroke : "",
    };
  });
  const report = {
    dark: matchMedia("(prefers-color-scheme: dark)").matches,
    ground: getComputedStyle(document.body).backgroundColor,
    ink: getComputedStyle(document.body).color,
    title: document.title,
    text: document.body.innerText,
    images: document.images.length,
    resources: performance.getEntriesByType("resource").length,
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    height: document.documentElement.scrollHeight,
    charts, outside, overlaps,
  };
  document.body.setAttribute("data-probe", btoa(unescape(encodeURIComponent(JSON.stringify(report)))));
})();
