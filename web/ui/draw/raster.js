// @ts-check
/**
 * The digits model's input, computed in the page like in `tools/digits_data.py`, which describes it. A test compares both.
 * @typedef {[number, number]} Point a place on the drawing area, both coordinates in [0, 1], y down
 */

/** Side of a model input in pixels. */
export const SIZE = 16;

const PEN_RADIUS = 1.5;
const MINIMUM_EXTENT = 0.15;

/** Convert pen strokes to ink in [0, 1], `side * side` values in row-major order; the drawing is centered and fills the image.
 *
 * @param {ReadonlyArray<ReadonlyArray<Point>>} strokes
 * @param {number} [side]
 * @returns {Float32Array}
 */
export function rasterize(strokes, side = SIZE) {
  const image = new Float32Array(side * side);
  const radius = (PEN_RADIUS * side) / SIZE;
  const segments = toSegments(strokes, side - 2 * radius);
  if (!segments.length) return image;
  for (let i = 0; i < image.length; i++) {
    const px = (i % side) + 0.5 - side / 2;
    const py = Math.floor(i / side) + 0.5 - side / 2;
    let nearest2 = Infinity;
    for (const [x, y, dx, dy, length2] of segments) {
      const t = Math.min(1, Math.max(0, ((px - x) * dx + (py - y) * dy) / length2));
      const ex = px - x - t * dx;
      const ey = py - y - t * dy;
      nearest2 = Math.min(nearest2, ex * ex + ey * ey);
    }
    image[i] = Math.min(1, Math.max(0, radius + 0.5 - Math.sqrt(nearest2)));
  }
  return image;
}

/**
 * Return the strokes' segments in pixels from the image's center: start x, y, direction x, y, squared length.
 * @param {ReadonlyArray<ReadonlyArray<Point>>} strokes
 * @param {number} extent length of the drawing's longer side, in pixels
 * @returns {[number, number, number, number, number][]}
 */
function toSegments(strokes, extent) {
  const points = strokes.flat();
  const xs = points.map(([x]) => x);
  const ys = points.map(([, y]) => y);
  const [left, right] = [Math.min(...xs), Math.max(...xs)];
  const [top, bottom] = [Math.min(...ys), Math.max(...ys)];
  const scale = extent / Math.max(MINIMUM_EXTENT, right - left, bottom - top);
  /** @type {[number, number, number, number, number][]} */
  const segments = [];
  for (const stroke of strokes) {
    const ends = stroke.length > 1 ? stroke.slice(1) : stroke;
    ends.forEach(([x1, y1], i) => {
      const [x0, y0] = stroke[i];
      const [dx, dy] = [(x1 - x0) * scale, (y1 - y0) * scale];
      const [x, y] = [(x0 - (left + right) / 2) * scale, (y0 - (top + bottom) / 2) * scale];
      segments.push([x, y, dx, dy, Math.max(dx * dx + dy * dy, 1e-12)]);
    });
  }
  return segments;
}

/** Convert an 8x8 test image (counts 0..16) to a model input by bilinear interpolation between pixel centers, edges clamped.
 *
 * @param {Uint8Array} counts
 * @returns {Float32Array}
 */
export function fromCounts(counts) {
  const side = SIZE / 2;
  const image = new Float32Array(SIZE * SIZE);
  const at = (/** @type {number} */ row, /** @type {number} */ column) => {
    const clamp = (/** @type {number} */ i) => Math.min(side - 1, Math.max(0, i));
    return counts[clamp(row) * side + clamp(column)] / 16;
  };
  for (let i = 0; i < image.length; i++) {
    const y = (Math.floor(i / SIZE) + 0.5) / 2 - 0.5;
    const x = ((i % SIZE) + 0.5) / 2 - 0.5;
    const [row, column] = [Math.floor(y), Math.floor(x)];
    const [v, u] = [y - row, x - column];
    const upper = at(row, column) * (1 - u) + at(row, column + 1) * u;
    const lower = at(row + 1, column) * (1 - u) + at(row + 1, column + 1) * u;
    image[i] = upper * (1 - v) + lower * v;
  }
  return image;
}
