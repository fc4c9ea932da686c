// Runs in the page, before the page's own scripts. Records for probe.js what is drawn on each canvas after
// its last clearing.
(() => {
  const context = CanvasRenderingContext2D.prototype;
  const watched = (name, watch) => {
    const real = context[name];
    context[name] = function (...args) {
      this.drawn ??= { texts: [], shapes: 0 };
      watch(this, args);
      return real.apply(this, args);
    };
  };
  watched("clearRect", (canvas) => { canvas.drawn = { texts: [], shapes: 0 }; });
  // uPlot draws only the series as Path2D.
  watched("stroke", (canvas, args) => { canvas.drawn.shapes += args.length; });
  watched("fill", (canvas, args) => { canvas.drawn.shapes += args[0] instanceof Path2D ? 1 : 0; });
  watched("fillText", (canvas, [text, x, y]) => {
    const size = canvas.measureText(text);
    const corners = [
      [x - size.actualBoundingBoxLeft, y - size.actualBoundingBoxAscent],
      [x + size.actualBoundingBoxRight, y + size.actualBoundingBoxDescent],
    ].map(([x, y]) => canvas.getTransform().transformPoint({ x, y }));
    const [xs, ys] = [corners.map((corner) => corner.x), corners.map((corner) => corner.y)];
    const box = { left: Math.min(...xs), right: Math.max(...xs), top: Math.min(...ys), bottom: Math.max(...ys) };
    canvas.drawn.texts.push({ text, box });
  });
})();
