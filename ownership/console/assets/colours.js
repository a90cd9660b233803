// colours.js gives every owner a colour that stays its own: from its id, so
// that it is the same tomorrow and in the next window, and out of the way of
// the colours of those that are there as well.
//
// The first eight differ in lightness where those who do not see red and green
// would see one hue: blues, yellows and greys of 0.42 to 0.88. Later tiers repeat
// them lighter and darker. Red is nobody's: it says that there is no owner.
//
// [lightness, chroma, hue] in OKLCH, for the light theme.
const base = [
  [0.58, 0.13, 257], // blue
  [0.72, 0.13, 62], // orange
  [0.56, 0.10, 162], // green
  [0.75, 0.10, 345], // pink
  [0.82, 0.08, 222], // sky
  [0.87, 0.11, 99], // yellow
  [0.48, 0.07, 52], // brown
  [0.43, 0.12, 296], // violet
];
// Each tier changes all eight: [lightness, share of the chroma, hue].
const tiers = [[0, 1, 0], [0.12, 0.7, 22], [-0.12, 0.8, -22], [0.05, 0.45, 11], [-0.08, 0.5, -11]];
const size = base.length * tiers.length;

const slots = new Map(); // id → slot; ids that have gone keep theirs while nobody needs it

function hash(id) {
  let x = 0x811c9dc5;
  for (let i = 0; i < id.length; i++) x = Math.imul(x ^ id.charCodeAt(i), 0x01000193);
  x ^= x >>> 15;
  return Math.imul(x, 0x2c1b3c6d) >>> 8;
}

// meet settles the slots of all ids that are there now. Colours given before
// do not change.
export function meet(ids) {
  const here = new Set(ids), taken = new Map([...slots].map(([id, s]) => [s, id]));
  for (const id of [...here].sort()) {
    if (slots.has(id)) continue;
    // A free slot of the first tier that has one; else that of somebody gone.
    const start = hash(id) % base.length;
    let pick = -1;
    for (const may of [(s) => !taken.has(s), (s) => !here.has(taken.get(s))]) {
      for (let i = 0; i < size && pick < 0; i++) {
        const s = Math.floor(i / base.length) * base.length + ((start + i) % base.length);
        if (may(s)) pick = s;
      }
      if (pick >= 0) break;
    }
    if (pick < 0) pick = hash(id) % size; // more than there are colours
    else if (taken.has(pick)) slots.delete(taken.get(pick));
    slots.set(id, pick);
    taken.set(pick, id);
  }
}

// look is [lightness, chroma, hue] of an owner in the theme that is on: on a
// dark ground light colours glare.
function look(id) {
  if (!slots.has(id)) meet([id]);
  const n = slots.get(id), [l, c, hue] = base[n % base.length], [dl, fc, dh] = tiers[Math.floor(n / base.length)];
  const light = Math.min(0.9, l + dl);
  return [dark() ? 0.57 + (light - 0.57) * 0.82 : light, c * fc, (hue + dh + 360) % 360];
}

// colour is the CSS colour of an owner.
export function colour(id) {
  const [l, c, hue] = look(id);
  return `oklch(${l.toFixed(3)} ${c.toFixed(3)} ${hue})`;
}

// ink is black or white, whichever can be read on an owner's colour.
export const ink = (id) => (look(id)[0] > 0.62 ? '#111' : '#fff');

// short is the part of an id that fits into a small mark: its number, or its
// first letters.
export function short(id) {
  const digits = /(\d{1,3})\D*$/.exec(id);
  return digits ? digits[1] : id.slice(0, 2);
}

// dark says whether the dark theme is on, chosen or by the system.
export function dark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
}

let probe = null;

// token resolves a colour of app.css, such as '--bad', for a canvas.
export function token(name) {
  if (!probe) {
    probe = document.createElement('i');
    probe.hidden = true;
    document.body.append(probe);
  }
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}
