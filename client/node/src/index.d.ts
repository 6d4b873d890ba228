import type {
  Captured as WireCaptured, ExecuteParams, ExecuteResult as WireResult, FileStatus, FolderEntry, Forwarded, SandboxCreateParams,
  StatusResult, CheckParams, CheckResult, Detached, StreamPositions,
} from "./types"

export * from "./types"

/** What a command wrote. */
interface Readable {
  /** Bytes that are not UTF-8 show as the replacement character. */
  readonly text: string
  /** Exactly as it was written. */
  readonly raw: Buffer
}
export interface Captured extends WireCaptured, Readable {}
export interface ExecuteResult extends WireResult {
  stdout: Captured
  stderr: Captured
}
export interface PolicyOptions {
  /** Variables over your usual ones (PATH, HOME, …). */
  env?: Record<string, string>
  /** Seconds, or "5m", "none" or "longest". */
  timeout?: number | string
}
export type Options = Partial<Omit<ExecuteParams, "argv" | "stream" | "detach" | "fds" | "stdin">> & PolicyOptions & {
  /** Of any size. */
  stdin?: string | Uint8Array
  signal?: AbortSignal
}
export interface OutputEvent extends Readable {
  stream: "stdout" | "stderr"
  data: string | Buffer
}
export interface RunOptions extends PolicyOptions {
  cwd?: string
  stdin?: string | Uint8Array
  /** One ordered stream: stderr goes into stdout. */
  merge?: boolean
  signal?: AbortSignal
}

export interface TransferOptions {
  /** Bytes that are done, and how many there are. */
  progress?: (done: number, total: number) => void
  /** A link that leads out of the folder is an UnsafeLink, or left out. */
  links?: "refuse" | "skip"
}

export class Execution implements AsyncIterable<OutputEvent> {
  readonly executionId: string
  readonly result: Promise<ExecuteResult>
  [Symbol.asyncIterator](): AsyncGenerator<OutputEvent>
  write(data: string | Uint8Array): Promise<unknown>
  closeStdin(): Promise<unknown>
  signal(signal: number | string): Promise<unknown>
  resize(rows: number, cols: number): Promise<unknown>
  cancel(): Promise<unknown>
  kill(): Promise<unknown>
  wait(): Promise<ExecuteResult>
}

export class Box {
  readonly sandbox: string
  static attach(client: Client, name: string): Box
  run(command: string | string[], options?: RunOptions): Promise<ExecuteResult>
  start(command: string | string[], options?: RunOptions): Execution
  read(path: string, options?: { offset?: number; length?: number }): Promise<Buffer>
  readText(path: string): Promise<string>
  write(path: string, data: string | Uint8Array, options?: { mode?: number; append?: boolean }): Promise<void>
  list(path?: string, options?: { recursive?: boolean; limit?: number }): Promise<FolderEntry[]>
  stat(path: string, options?: { follow?: boolean }): Promise<FileStatus>
  mkdir(path: string, options?: { parents?: boolean }): Promise<unknown>
  remove(path: string, options?: { recursive?: boolean }): Promise<unknown>
  rename(from: string, to: string): Promise<unknown>
  copy(from: string, to: string, options?: { recursive?: boolean }): Promise<unknown>
  realpath(path: string): Promise<string>
  upload(source: string, target: string, options?: TransferOptions): Promise<void>
  download(source: string, target: string, options?: TransferOptions): Promise<void>
  forward(port: number, options?: { listen?: "unix" | "tcp" }): Promise<Forwarded>
  unforward(forward: string): Promise<unknown>
  close(): Promise<void>
  destroy(): Promise<unknown>
}

export interface ConnectOptions {
  socket?: string
  autostart?: boolean
  /** Belong to the session that $SANDBOXD_SESSION names. */
  joinSession?: boolean
}

export class Client {
  static connect(options?: ConnectOptions): Promise<Client>
  call(method: string, params?: object): Promise<any>
  execute(argv: string[], options?: Options): Promise<ExecuteResult>
  stream(argv: string[], options?: Options): Execution
  start(argv: string[], options?: Omit<Options, "signal">): Promise<Detached>
  wait(executionId: string): Promise<ExecuteResult>
  attach(executionId: string, options?: {
    stdin?: boolean; after?: StreamPositions; signal?: AbortSignal
  }): Execution
  box(options?: Partial<SandboxCreateParams> & PolicyOptions): Promise<Box>
  status(): Promise<StatusResult>
  onNotice(listener: (method: string, params: any) => void): void
  check(options?: Partial<CheckParams> & PolicyOptions): Promise<CheckResult>
  close(): void
}

export function connect(options?: ConnectOptions): Promise<Client>
export function defaultSocket(env?: Record<string, string | undefined>): string

export class SandboxdError extends Error {
  readonly code: number
  readonly kind: string
  readonly field?: string
  readonly remedy?: string
  readonly facts: Record<string, unknown>
}
export class ConnectionLost extends SandboxdError {}
export class TimeoutExpired extends Error {
  readonly result: ExecuteResult
}
export class UnsafeLink extends Error {}
export class ParseError extends SandboxdError {}
export class InvalidRequest extends SandboxdError {}
export class MethodNotFound extends SandboxdError {}
export class InvalidParams extends SandboxdError {}
export class ManifestInvalid extends SandboxdError {}
export class InternalError extends SandboxdError {}
export class SandboxUnavailable extends SandboxdError {}
export class PolicyNotSupported extends SandboxdError {}
export class PathDenied extends SandboxdError {}
export class ExecFailed extends SandboxdError {}
export class NotFound extends SandboxdError {}
export class Unauthorized extends SandboxdError {}
export class BudgetExceeded extends SandboxdError {}
export class ApprovalDenied extends SandboxdError {}
export class Busy extends SandboxdError {}
export class ShuttingDown extends SandboxdError {}
export class CeilingExceeded extends SandboxdError {}
export class ApprovalPending extends SandboxdError {}
export class Conflict extends SandboxdError {}
export class FileError extends SandboxdError {}
