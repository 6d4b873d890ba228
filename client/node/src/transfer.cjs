"use strict"

// Local files of an upload or a download. A command in the sandbox may change them meanwhile, so the
// root is opened once, and nothing is opened through a link: on Linux each folder is entered by its
// descriptor. Node cannot do that elsewhere; there the folders are looked at before.

const fs = require("node:fs")
const path = require("node:path")
const { promisify } = require("node:util")
const { UnsafeLink } = require("./errors.cjs")

const PIECE = 4 * 1024 * 1024
const read = promisify(fs.read)
const write = promisify(fs.write)
const { O_RDONLY, O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW = 0, O_NONBLOCK = 0, O_DIRECTORY = 0 } = fs.constants
const BY_DESCRIPTOR = process.platform === "linux"

/** `work(root)` with the folder that is there now, whatever takes its place meanwhile. */
async function pinned(folder, work) {
  if (!BY_DESCRIPTOR) return work(fs.realpathSync(folder))
  const fd = fs.openSync(folder, O_RDONLY | O_DIRECTORY)
  try {
    return await work(`/proc/self/fd/${fd}`)
  } finally {
    fs.closeSync(fd)
  }
}

/** Entries below a folder: `{ name, type, size, mode, target }`, folders before what is in them. */
function scan(root, below = "") {
  return inFolder(root, below ? `${below}/x` : "x", (place) => {
    const folder = path.dirname(place)
    const found = []
    for (const name of fs.readdirSync(folder).sort()) {
      const shown = below ? `${below}/${name}` : name
      const status = fs.lstatSync(path.join(folder, name))
      if (status.isSymbolicLink()) {
        found.push({ name: shown, type: "symlink", size: 0, target: fs.readlinkSync(path.join(folder, name)) })
      } else if (status.isDirectory()) {
        found.push({ name: shown, type: "dir", size: 0 }, ...scan(root, shown))
      } else if (status.isFile()) {
        found.push({ name: shown, type: "file", size: status.size, mode: status.mode & 0o777 })
      }
    }
    return found
  })
}

function checkName(name) {
  const parts = name.split("/")
  const strange = path.sep === "\\" && /[\\:]/.test(name)
  if (strange || parts.some((part) => part === "" || part === "." || part === "..")) {
    throw new Error(`the sandbox names a file outside the folder: ${JSON.stringify(name)}`)
  }
}

/** `..` is accepted at the beginning only: behind another link it would mean another folder. */
function checkLink(name, target) {
  const parts = target.split("/").filter((part) => part !== "" && part !== ".")
  let ups = 0
  while (parts[ups] === "..") ups++
  const depth = name.split("/").length - 1
  if (!target || target.startsWith("/") || parts.slice(ups).includes("..") || ups > depth) {
    throw new UnsafeLink(`${name} is a link that leads out of the folder: ${target}`)
  }
}

/** Whether an entry is copied; a link that leads out is an error, or left out with `skip`. */
function isKept(entry, links) {
  if (entry.type !== "symlink") return true
  try {
    checkLink(entry.name, entry.target)
  } catch (error) {
    if (links !== "skip") throw error
    return false
  }
  return true
}

/** `work(place)` with the place of a name below `root`; no folder on the way is a link. */
function inFolder(root, name, work) {
  const parts = name.split("/")
  const last = parts.pop()
  if (!BY_DESCRIPTOR) {
    let place = root
    for (const part of parts) {
      place = path.join(place, part)
      if (fs.lstatSync(place).isSymbolicLink()) throw new Error(`${place} is a link: nothing is copied through it`)
    }
    return work(path.join(place, last))
  }
  let fd = fs.openSync(root, O_RDONLY | O_DIRECTORY)
  try {
    for (const part of parts) {
      const inner = fs.openSync(`/proc/self/fd/${fd}/${part}`, O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
      fs.closeSync(fd)
      fd = inner
    }
    return work(`/proc/self/fd/${fd}/${last}`)
  } finally {
    fs.closeSync(fd)
  }
}

function removeFile(place) {
  try {
    fs.unlinkSync(place)
  } catch (error) {
    if (error.code !== "ENOENT") throw error
  }
}

function makeFolder(root, name) {
  inFolder(root, name, (place) => {
    try {
      fs.mkdirSync(place)
    } catch (error) {
      if (error.code !== "EEXIST") throw error
    }
  })
}

/** A descriptor: a regular file below `root`, opened for reading. */
function openFile(root, name) {
  return inFolder(root, name, (place) => fs.openSync(place, O_RDONLY | O_NOFOLLOW | O_NONBLOCK))
}

async function readPiece(fd) {
  const buffer = Buffer.alloc(PIECE)
  const { bytesRead } = await read(fd, buffer, 0, PIECE, null)
  return buffer.subarray(0, bytesRead)
}

/** `{ data, first, last }` of a file. */
async function* pieces(root, name) {
  const fd = openFile(root, name)
  try {
    if (!fs.fstatSync(fd).isFile()) throw new Error(`${name} is no regular file any more`)
    let [data, first] = [await readPiece(fd), true]
    while (data.length || first) {
      const more = await readPiece(fd)
      yield { data, first, last: more.length === 0 };
      [data, first] = [more, false]
    }
  } finally {
    fs.closeSync(fd)
  }
}

/** The descriptor of a new file in place of what has this name; set-id bits are never set. */
function create(root, name, mode) {
  checkName(name)
  return inFolder(root, name, (place) => {
    removeFile(place)
    return fs.openSync(place, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode & 0o777)
  })
}

function makeLink(root, name, target) {
  checkLink(name, target)
  inFolder(root, name, (place) => {
    removeFile(place)
    fs.symlinkSync(target, place)
  })
}

async function writeAll(fd, data) {
  for (let at = 0; at < data.length;) at += (await write(fd, data, at)).bytesWritten
}

/** Tells `progress(done, total)` how many bytes are done. */
function counter(progress, total) {
  let done = 0
  progress?.(0, total)
  return (size) => {
    done += size
    progress?.(done, Math.max(done, total))
  }
}

module.exports = { PIECE, checkName, counter, create, isKept, makeFolder, makeLink, pieces, pinned, scan, writeAll }
