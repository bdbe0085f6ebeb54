// A canvas as wide as the place it stands in, sharp on any screen.

export class Canvas {
  constructor(host, label, height, draw) {
    this.draw = draw;
    this.node = document.createElement("canvas");
    this.grow(height);
    this.node.className = "wide";
    this.node.setAttribute("role", "img");
    this.node.setAttribute("aria-label", label);
    host.append(this.node);
    this.context = this.node.getContext("2d");
    this.frame = 0;
    this.sizes = new ResizeObserver(() => this.later());
    this.sizes.observe(host);
    this.host = host;
    this.recolour = () => this.later();
    addEventListener("rlship-theme", this.recolour);
  }

  close() {
    this.sizes.disconnect();
    removeEventListener("rlship-theme", this.recolour);
    cancelAnimationFrame(this.frame);
  }

  /** Be so high from now on: what stands below moves at once, and not under a person's pointer a frame later. */
  grow(height) {
    this.height = height;
    this.node.style.height = `${height}px`;
  }

  /** Draw at the next frame, once however often it is wanted. */
  later() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.now();
    });
  }

  now() {
    const width = Math.floor(this.host.clientWidth);
    if (width < 20) return;
    const ratio = Math.min(globalThis.devicePixelRatio || 1, 2);
    const [wide, tall] = [Math.round(width * ratio), Math.round(this.height * ratio)];
    if (this.node.width !== wide || this.node.height !== tall) {
      this.node.width = wide;
      this.node.height = tall;
    }
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.clearRect(0, 0, width, this.height);
    this.draw(this.context, width, this.height);
  }
}

/** A label around a place, as far as it has room before `end`. */
export function centred(context, label, x, end, y) {
  context.fillText(label, Math.min(x, end - context.measureText(label).width / 2), y);
}

/** Rows of pixels that are drawn as large as they are wanted. */
export class Raster {
  constructor() {
    this.node = document.createElement("canvas");
    this.context = this.node.getContext("2d");
    this.image = null;
  }

  /** An empty image of this size as 32-bit pixels. */
  pixels(width, height) {
    if (!this.image || this.image.width !== width || this.image.height !== height) {
      this.node.width = width;
      this.node.height = height;
      this.image = this.context.createImageData(width, height);
      this.words = new Uint32Array(this.image.data.buffer);
    } else this.words.fill(0);
    return this.words;
  }

  draw(context, x, y, width, height) {
    this.context.putImageData(this.image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.node, x, y, width, height);
  }
}
