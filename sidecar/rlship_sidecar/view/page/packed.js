// Matrices of numbers as they travel: base64 of 32-bit floats, and the shorter form of an exported file.

/** A matrix of an answer to /ranks, row by row; NaN where a number lacks, and null without the matrix. */
export async function matrixOf(said, stat = "mean") {
  const mean = await unpacked(said.mean);
  // What the server leaves out is the mean itself: every bucket has one value.
  if (stat === "mean" || !said[stat]) return mean;
  const own = await unpacked(said[stat]);
  if (said[stat].f32 !== undefined) return own;
  const sign = stat === "min" ? -1 : 1;
  return Float64Array.from(own, (distance, at) => mean[at] + sign * distance);
}

async function unpacked(matrix) {
  if (!matrix) return null;
  if (matrix.f32 !== undefined) {
    const bytes = bytesOf(matrix.f32);
    return new Float32Array(bytes.buffer, 0, bytes.length >> 2);
  }
  return planes(await inflated(bytesOf(matrix.z)), matrix.bytes, matrix.rows * matrix.columns);
}

/** The upper bytes of each float stand in planes, the highest first; the lower bytes are 0. */
function planes(bytes, kept, count) {
  const whole = new Uint32Array(count);
  for (let plane = 0; plane < kept; plane += 1) {
    for (let at = 0; at < count; at += 1) whole[at] |= bytes[plane * count + at] << (24 - 8 * plane);
  }
  return new Float32Array(whole.buffer);
}

export function bytesOf(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at += 1) bytes[at] = text.charCodeAt(at);
  return bytes;
}

export async function inflated(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
