// @ts-check
/** NumPy's file formats: reads .npy, writes .npy and .npz. Source: numpy.lib.format, APPNOTE.TXT of the ZIP format. */

import { ARRAYS, sizeOf } from '../../../api/elements.js';
import { Tensor } from '../../../pyruntime.js';

/** @typedef {import('../../../pyruntime.js').TensorType} TensorType */

/** @type {Record<string, TensorType>} */
const TYPES = {
  f2: 'float16', f4: 'float32', f8: 'float64', i1: 'int8', i2: 'int16', i4: 'int32', i8: 'int64', u1: 'uint8', u2: 'uint16',
  u4: 'uint32', u8: 'uint64', b1: 'bool' };
const CODES = Object.fromEntries(Object.entries(TYPES).map(([code, type]) => [type, code]));

/** Parse an .npy file. Refuses big-endian and unsupported element types. @param {ArrayBuffer} buffer @returns {Tensor} */
export function readNpy(buffer) {
  const bytes = new Uint8Array(buffer);
  const view = new DataView(buffer);
  const magic = [0x93, ...[...'NUMPY'].map((letter) => letter.charCodeAt(0))];
  if (bytes.length < 10 || magic.some((byte, i) => bytes[i] !== byte)) throw new TypeError('this is not an .npy file');
  const wide = bytes[6] > 1;
  const begin = wide ? 12 : 10;
  const end = begin + (wide ? view.getUint32(8, true) : view.getUint16(8, true));
  const header = new TextDecoder('latin1').decode(bytes.subarray(begin, end));
  const [, order, code] = /'descr':\s*'([<>|=])(\w\d+)'/.exec(header) ?? [];
  const type = TYPES[code];
  if (!type || order === '>') throw new TypeError(`the array's element type is none that models take: ${header.slice(0, 60)}`);
  if (/'fortran_order':\s*True/.test(header)) {
    throw new TypeError('the array is in Fortran order: save numpy.ascontiguousarray(array)');
  }
  const [, inner] = /'shape':\s*\(([^)]*)\)/.exec(header) ?? [];
  const dims = (inner ?? '').split(',').map((part) => part.trim()).filter(Boolean).map(Number);
  return tensorOf(type, buffer.slice(end), dims);
}

/** @param {TensorType} type @param {ArrayBuffer} data @param {number[]} dims */
function tensorOf(type, data, dims) {
  const nbytes = sizeOf(dims) * Number(CODES[type].slice(1));
  if (data.byteLength < nbytes) throw new RangeError('the file ends before its array does');
  return new Tensor(type, new ARRAYS[type](data.slice(0, nbytes)), dims);
}

/** @param {Tensor} tensor @returns {Uint8Array | null} null if NumPy has no such type */
function npyBytes(tensor) {
  const code = CODES[tensor.type];
  if (!code || Array.isArray(tensor.data)) return null;
  const shape = tensor.dims.length === 1 ? `${tensor.dims[0]},` : tensor.dims.join(', ');
  const order = /1$/.test(code) ? '|' : '<';
  const text = `{'descr': '${order}${code}', 'fortran_order': False, 'shape': (${shape}), }`;
  const length = Math.ceil((10 + text.length + 1) / 64) * 64 - 10;
  const { buffer, byteOffset, byteLength } = /** @type {ArrayBufferView} */ (tensor.data);
  const file = new Uint8Array(10 + length + byteLength);
  file.set([0x93, ...new TextEncoder().encode('NUMPY'), 1, 0, length & 255, length >> 8]);
  file.set(new TextEncoder().encode(`${text.padEnd(length - 1)}\n`), 10);
  file.set(new Uint8Array(buffer, byteOffset, byteLength), 10 + length);
  return file;
}

/**
 * Write an .npz file of tensors; tensors of types that NumPy lacks are left out.
 * @param {Record<string, Tensor>} tensors
 * @returns {{blob: Blob, left: string[]}}
 */
export function writeNpz(tensors) {
  const [files, left] = [/** @type {[string, Uint8Array][]} */ ([]), /** @type {string[]} */ ([])];
  for (const [name, tensor] of Object.entries(tensors)) {
    const bytes = tensor instanceof Tensor ? npyBytes(tensor) : null;
    if (bytes) files.push([`${name.replace(/[\\/]/g, '_')}.npy`, bytes]);
    else left.push(name);
  }
  return { blob: new Blob(/** @type {BlobPart[]} */ (zip(files)), { type: 'application/zip' }), left };
}

/** Write an uncompressed ZIP archive. @param {[string, Uint8Array][]} files */
function zip(files) {
  const [parts, directory] = [/** @type {Uint8Array[]} */ ([]), /** @type {Uint8Array[]} */ ([])];
  let offset = 0;
  for (const [name, data] of files) {
    const path = new TextEncoder().encode(name);
    const common = [20, 0x800, 0, 0, 0x21]; // version, names are UTF-8, stored, midnight, 1 January 1980
    const sizes = [crc32(data), data.length, data.length];
    const local = record(0x04034b50, common, sizes, [path.length, 0]);
    directory.push(record(0x02014b50, [20, ...common], sizes, [path.length, 0, 0, 0, 0], [0, offset]), path);
    parts.push(local, path, data);
    offset += local.length + path.length + data.length;
  }
  const size = directory.reduce((sum, part) => sum + part.length, 0);
  return [...parts, ...directory, record(0x06054b50, [0, 0, files.length, files.length], [size, offset], [0])];
}

/** Pack a signature, then groups of numbers that alternate between 16 and 32 bits. @param {number} signature @param {...number[]} groups */
function record(signature, ...groups) {
  const bytes = new Uint8Array(4 + groups.reduce((sum, group, i) => sum + group.length * (i % 2 ? 4 : 2), 0));
  const view = new DataView(bytes.buffer);
  view.setUint32(0, signature, true);
  let at = 4;
  groups.forEach((group, i) => group.forEach((value) => {
    if (i % 2) view.setUint32(at, value, true);
    else view.setUint16(at, value, true);
    at += i % 2 ? 4 : 2;
  }));
  return bytes;
}

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? 0xedb88320 ^ (value >>> 1) : value >>> 1;
  return value;
});

/** @param {Uint8Array} data */
function crc32(data) {
  let value = 0xffffffff;
  for (const byte of data) value = CRC_TABLE[(value ^ byte) & 255] ^ (value >>> 8);
  return (value ^ 0xffffffff) >>> 0;
}
