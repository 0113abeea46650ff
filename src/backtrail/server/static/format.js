// Numbers and times as text.

export function bytes(count) {
  if (count < 1000) return `${count} B`;
  for (const [unit, size] of [["kB", 1e3], ["MB", 1e6], ["GB", 1e9]]) {
    if (count < size * 1000) return `${(count / size).toFixed(1)} ${unit}`;
  }
  return `${(count / 1e12).toFixed(1)} TB`;
}

export function age(iso) {
  const seconds = Math.max(0, (Date.now() - Date.parse(iso)) / 1000);
  for (const [unit, length] of [["y", 31557600], ["mo", 2629800], ["d", 86400], ["h", 3600], ["m", 60]]) {
    if (seconds >= length) return `${Math.floor(seconds / length)}${unit}`;
  }
  return seconds < 5 ? "now" : `${Math.floor(seconds)}s`;
}

export const plural = (count, word, words = `${word}s`) => `${count.toLocaleString()} ${count === 1 ? word : words}`;

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
}

export function count(number) {
  if (number < 10000) return number.toLocaleString();
  return number < 1e6 ? `${(number / 1e3).toFixed(1)}k` : `${(number / 1e6).toFixed(2)}M`;
}
