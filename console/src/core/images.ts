/** Images of the cluster, and their uploads: pure. */
import { compare } from "./format";

/** An image, as `GET /2/images?bulk=1` returns it; sizes in MiB. */
export interface Image {
  readonly name: string;
  readonly description: string;
  readonly size: number;
  /** Space that its content takes on a node. */
  readonly stored: number;
  readonly "disk.sizes": readonly number[];
  readonly "disk.sha256": readonly string[];
  /** Size of the first disk of a new instance. */
  readonly disk_size: number;
  readonly firmware: string;
  readonly cloud_init: boolean;
  readonly beparams: Readonly<Record<string, unknown>>;
  readonly nic_count: number | null;
  readonly node_list: readonly string[];
  readonly ctime?: number;
}

/** An upload, as `/2/image-uploads` returns it; sizes in bytes. */
export interface Upload {
  readonly id: string;
  readonly name: string;
  readonly size: number;
  readonly offset: number;
  readonly state: "receiving" | "complete";
  readonly begun: number;
  readonly job: number | null;
}

/** What this page does for an upload. `isSending` is false after an end or a pause; `problem` says why it waits or has ended. */
export interface Sending {
  readonly id: string;
  readonly offset: number;
  readonly isSending: boolean;
  /** Bytes a second, null before the second piece. */
  readonly rate: number | null;
  readonly problem: string | null;
}

/** Bytes that the server had at a time in ms. */
export interface Sample {
  readonly at: number;
  readonly offset: number;
}

export interface Standing {
  readonly percent: number;
  readonly rate: number | null;
  readonly leftS: number | null;
}

const MIB = 1024 * 1024;
const LEAST_PIECE = MIB;
const GREATEST_PIECE = 64 * MIB;
const PIECE_S = 2;
const WINDOW_MS = 20_000;
const FIRST_WAIT_S = 1;
const GREATEST_WAIT_S = 30;

export function sortedImages(images: readonly Image[]): Image[] {
  return [...images].sort((one, other) => compare(one.name, other.name));
}

/** The samples with a new one; those older than the window are left out. */
export function sampled(samples: readonly Sample[], sample: Sample): Sample[] {
  return [...samples.filter((one) => sample.at - one.at <= WINDOW_MS), sample];
}

/** Bytes a second over the samples, null if they say nothing. */
export function rateOf(samples: readonly Sample[]): number | null {
  const [first] = samples;
  const last = samples.at(-1);
  if (!first || !last || last.at <= first.at || last.offset <= first.offset) return null;
  return (1000 * (last.offset - first.offset)) / (last.at - first.at);
}

/** How many bytes to send at once: about two seconds' worth, so that the figures move and little is sent again. */
export function pieceOf(rate: number | null): number {
  return Math.round(Math.min(GREATEST_PIECE, Math.max(LEAST_PIECE, (rate ?? 0) * PIECE_S)));
}

/** Seconds before the attempt after so many failures in a row. */
export function waitOf(failures: number): number {
  return Math.min(GREATEST_WAIT_S, FIRST_WAIT_S * 2 ** (failures - 1));
}

export function standingOf(upload: Upload, sending: Sending | undefined): Standing {
  const offset = Math.max(upload.offset, sending?.offset ?? 0);
  const rate = sending?.isSending ? sending.rate : null;
  return { percent: (100 * offset) / upload.size, rate, leftS: rate ? (upload.size - offset) / rate : null };
}

/** A file that this browser has begun to upload. */
export interface Known {
  readonly file: string;
  readonly size: number;
  readonly modified: number;
}

/** Why a file cannot continue an upload, or null; `known` is what this browser remembers of its file. */
export function mismatchOf(upload: Upload, known: Known | null, file: { name: string; size: number; lastModified: number }): "size" | "changed" | null {
  if (file.size !== upload.size) return "size";
  return known && (known.file !== file.name || known.modified !== file.lastModified) ? "changed" : null;
}

const ENDINGS = /(\.(qcow2|img|raw|vmdk|ova))+$/i;

/** The name of an image for a file: that of the file without its ending, with the characters that names may have. */
export function nameFor(file: string): string {
  return file.replace(ENDINGS, "").replace(/[^A-Za-z0-9._-]+/g, "-").replace(/^[^A-Za-z0-9]+/, "").slice(0, 63);
}

/** A digest that is long enough for people to compare. */
export function shortDigest(digest: string | undefined): string {
  return digest ? `${digest.slice(0, 12)}…` : "–";
}
