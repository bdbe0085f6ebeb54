// Matrices of numbers as they travel: base64 of 32-bit floats, and the shorter form of an exported file.

/** The numbers of a matrix, row by row; NaN where one lacks. A promise, because what is packed tighter takes time. */
export async function unpacked(matrix) {
  if (!matrix) return null;
  if (matrix.f32 !== undefined) {
    const bytes = bytesOf(matrix.f32);
    return new Float32Array(bytes.buffer, 0, bytes.length >> 2);
  }
  return planes(await inflated(bytesOf(matrix.z24)), matrix.rows * matrix.columns);
}

/** The upper three bytes of each float stand in planes, the highest first; the lowest byte is 0. */
function planes(bytes, count) {
  const whole = new Uint32Array(count);
  for (let at = 0; at < count; at += 1) {
    whole[at] = ((bytes[at] << 24) | (bytes[count + at] << 16) | (bytes[2 * count + at] << 8)) >>> 0;
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
