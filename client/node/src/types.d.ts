/* Generated from proto/openrpc.json by `npm run types`. Do not edit. */

export interface Schemas {
ApprovalInfo?: ApprovalInfo
ApprovalList?: ApprovalList
ApprovalListParams?: ApprovalListParams
ApprovalPendingNotice?: ApprovalPendingNotice
ApprovalWaitParams?: ApprovalWaitParams
AttachParams?: AttachParams
Attached?: Attached
Attempt?: Attempt
AuditPage?: AuditPage
AuditQueryParams?: AuditQueryParams
BackendStatus?: BackendStatus
Base64Data?: Base64Data
Budget?: Budget
BudgetNotice?: BudgetNotice
CaptureParams?: CaptureParams
Captured?: Captured
ChargeParams?: ChargeParams
Charged?: Charged
CheckParams?: CheckParams
CheckResult?: CheckResult
Choice?: Choice
CopyParams?: CopyParams
DecideParams?: DecideParams
Denial?: Denial
DenialSeen?: DenialSeen
Detached?: Detached
Duration?: Duration
Event?: Event
ExecuteParams?: ExecuteParams
ExecuteResult?: ExecuteResult
ExecutionInfo?: ExecutionInfo
ExecutionList?: ExecutionList
ExecutionListParams?: ExecutionListParams
ExecutionRef?: ExecutionRef
ExecutionStatus?: ExecutionStatus
Exited?: Exited
Explanation?: Explanation
FileData?: FileData
FileStatus?: FileStatus
FileWriteParams?: FileWriteParams
FolderEntry?: FolderEntry
FolderList?: FolderList
ForwardParams?: ForwardParams
Forwarded?: Forwarded
GrantInfo?: GrantInfo
GrantList?: GrantList
GrantListParams?: GrantListParams
GrantRef?: GrantRef
Head?: Head
HostUsage?: HostUsage
InitializeParams?: InitializeParams
InitializeResult?: InitializeResult
LeftProcesses?: LeftProcesses
ListParams?: ListParams
Manifest?: Manifest
MkdirParams?: MkdirParams
NeedRow?: NeedRow
Network?: Network
NoParams?: NoParams
Nothing?: Nothing
Output?: Output
Party?: Party
PassedDescriptors?: PassedDescriptors
PathParams?: PathParams
Progress?: Progress
PtySize?: PtySize
Reach?: Reach
ReadParams?: ReadParams
RealPath?: RealPath
Record?: Record
RemoveParams?: RemoveParams
RenameParams?: RenameParams
Requester?: Requester
ResizeParams?: ResizeParams
Resolution?: Resolution
ResolvedManifest?: ResolvedManifest
SandboxCounts?: SandboxCounts
SandboxCreateParams?: SandboxCreateParams
SandboxCreated?: SandboxCreated
SandboxDetails?: SandboxDetails
SandboxInfo?: SandboxInfo
SandboxList?: SandboxList
SandboxRef?: SandboxRef
SessionAttachParams?: SessionAttachParams
SessionClosed?: SessionClosed
SessionInfo?: SessionInfo
SessionList?: SessionList
SessionOpenParams?: SessionOpenParams
SessionOpened?: SessionOpened
SessionRef?: SessionRef
SessionUpdateParams?: SessionUpdateParams
SessionUsage?: SessionUsage
SignalParams?: SignalParams
Started?: Started
StatParams?: StatParams
StatusResult?: StatusResult
StreamPositions?: StreamPositions
SubscribeParams?: SubscribeParams
Subscribed?: Subscribed
UnforwardParams?: UnforwardParams
UnsubscribeParams?: UnsubscribeParams
Usage?: Usage
Verified?: Verified
WaitParams?: WaitParams
Widening?: Widening
WriteParams?: WriteParams
Written?: Written
}
/**
 * `argv` is whole and meant for approvers; `display` has control characters escaped.
 */
export interface ApprovalInfo {
add: ({
[k: string]: unknown | undefined
} | null)
approval: string
argv: (string[] | null)
because: unknown[]
choices: Choice[]
client: Requester
cwd: (string | null)
digest: string
display: (string | null)
effect: (("bare" | "edit" | "reach" | "read") | null)
execution_id: (string | null)
expires_ms: number
kind: ("budget" | "egress" | "execute" | "sandbox" | "session" | "widen")
plan: (string | null)
question: string
reach: (Reach | null)
requested_ms: number
resolution: (Resolution | null)
session: string
state: ("allowed" | "cancelled" | "denied" | "expired" | "pending")
title: (string | null)
truncated: boolean
waiting: number
warnings: string[]
}
export interface Choice {
add: ({
[k: string]: unknown | undefined
} | null)
allows: boolean
choice: string
label: string
scope: string
}
export interface Requester {
name: string
pid: (number | null)
}
export interface Reach {
network: Network
read: string[]
write: string[]
}
export interface Network {
hosts?: string[]
kind: ("allow_hosts" | "deny" | "inherit")
}
export interface Resolution {
at_ms: number
by: (Requester | null)
choice: (string | null)
grant: (string | null)
message: (string | null)
reason: string
}
export interface ApprovalList {
approvals: ApprovalInfo[]
approvers: number
}
export interface ApprovalListParams {
session?: (string | null)
state?: ("allowed" | "cancelled" | "denied" | "expired" | "pending")
}
/**
 * `execution/pending`: the execution waits for an approval.
 */
export interface ApprovalPendingNotice {
approval: string
approvers: number
execution_id: string
expires_ms: number
kind: ("budget" | "egress" | "execute" | "sandbox" | "session" | "widen")
}
export interface ApprovalWaitParams {
approval: string
timeout_secs?: (number | null)
}
export interface AttachParams {
after?: (StreamPositions | null)
execution_id: string
stdin?: boolean
}
/**
 * The `seq` of the last piece of each stream that is known already.
 */
export interface StreamPositions {
stderr?: number
stdout?: number
}
/**
 * `gap`: older output than is kept was asked for. `next_seq`: where each stream stands now.
 */
export interface Attached {
gap: boolean
next_seq: {
[k: string]: number | undefined
}
pty: boolean
state: ("ended" | "pending" | "running")
stdin_open: boolean
}
/**
 * An earlier run of the same command, before its plan was widened.
 */
export interface Attempt {
denials: Denial[]
duration_ms: number
exit_code: (number | null)
outcome: ("budget" | "cancelled" | "cpu" | "exited" | "file_size" | "isolation_lost" | "memory" | "output_limit" | "processes" | "signaled" | "timeout")
}
/**
 * `remedy` is the manifest change that would allow it, ready to paste; None where none can.
 * 
 * `claimed`: the command's own output says so, and the plan does refuse it. Its remedy is what the
 * command asks for, not what the sandbox has seen it need.
 */
export interface Denial {
claimed: boolean
confidence: ("high" | "low" | "medium")
evidence: ("gate" | "kernel" | "policy" | "text")
kind: ("cpu" | "file_size" | "filesystem_read" | "filesystem_write" | "memory" | "network" | "process" | "processes" | "protected_path" | "sandbox_error" | "syscall" | "timeout")
layer: ("engine" | "gate" | "landlock" | "limit" | "mount" | "namespace" | "profile" | "seccomp" | "supervisor")
message: string
operation: string
remedy: ({
[k: string]: unknown | undefined
} | null)
target: (string | null)
}
/**
 * `next`: the cursor of the next page, null when there is no more.
 */
export interface AuditPage {
head: Head
next: (string | null)
records: Record[]
}
/**
 * The last record. A copy kept elsewhere shows whether the trail was rewritten.
 */
export interface Head {
seq: number
sha256: string
}
/**
 * One line of the trail. `prev` is the SHA-256 of the line before.
 */
export interface Record {
at: string
client: ({
[k: string]: unknown | undefined
} | null)
data: {
[k: string]: unknown | undefined
}
execution_id: (string | null)
prev: string
seq: number
session: (string | null)
type: string
v: number
}
export interface AuditQueryParams {
after?: (string | null)
before?: (string | null)
execution_id?: (string | null)
limit?: number
session?: (string | null)
types?: (string[] | null)
}
/**
 * `use`: tried on this system for requests that name no backend, only for those that name it,
 * or `elsewhere`: it is another system's. `remote`: another machine makes its sandboxes.
 */
export interface BackendStatus {
available: boolean
layers: string[]
name: string
reason: (string | null)
remedy: (string | null)
remote: boolean
use: ("automatic" | "elsewhere" | "named")
}
export interface Base64Data {
base64: string
}
/**
 * What a session and all sessions below it may use. `max_processes` counts executions at
 * once; the manifest's field of that name counts processes of one command.
 */
export interface Budget {
max_agent_depth?: (number | null)
max_cost_usd?: (number | null)
max_processes?: (number | null)
max_tokens_in?: (number | null)
max_tokens_out?: (number | null)
max_tool_runtime_secs?: (number | null)
max_wall_time_secs?: (number | null)
}
export interface BudgetNotice {
fraction?: number
limit: number
observed: number
reason: string
session: string
}
/**
 * How much of each stream is put into the result, and which end of it.
 */
export interface CaptureParams {
bytes: number
keep?: ("both" | "head" | "tail")
}
/**
 * `bytes` counts all that was printed; `data` is empty without capture. `gap_at`: where in
 * `data` (in characters, or bytes of base64) a middle part is missing, with `keep: "both"`.
 * What is not UTF-8 is base64 in `data`: use `raw` or `text`.
 */
export interface Captured {
bytes: number
data: string
encoding: ("base64" | "utf-8")
gap_at?: number
truncated: boolean
}
export interface ChargeParams {
cost_usd?: number
request_id?: (string | null)
session?: (string | null)
tokens_in?: number
tokens_out?: number
}
/**
 * `fraction`: of the limit that is nearest; 0 without limits.
 */
export interface Charged {
fraction: number
repeated: boolean
usage: SessionUsage
}
export interface SessionUsage {
cost_usd: number
processes: number
tokens_in: number
tokens_out: number
tool_runtime_secs: number
wall_time_secs: number
}
export interface CheckParams {
backend?: (string | null)
cwd?: (string | null)
manifest?: (Manifest | null)
preset?: (string | null)
session?: (string | null)
workspace?: (string | null)
}
/**
 * The fields that a caller can set; None means "not set".
 * 
 * `timeout`: "none", or "longest": as long as the daemon's config permits.
 */
export interface Manifest {
base?: (("host" | "minimal") | null)
env?: ([string, string][] | {
[k: string]: string | undefined
} | null)
fs_deny?: (string[] | null)
fs_read_allow?: (string[] | null)
fs_write_allow?: (string[] | null)
image?: (string | null)
max_cpu_secs?: (number | null)
max_cpus?: (number | null)
max_file_bytes?: (number | null)
max_memory_bytes?: (number | null)
max_output_bytes?: (number | null)
max_processes?: (number | null)
network?: (("deny" | "inherit") | Network | null)
shm_bytes?: (number | null)
syscall_policy?: (("baseline" | "inherit" | "strict") | null)
timeout?: (number | ("longest" | "none") | Duration | null)
tmp_bytes?: (number | null)
}
export interface Duration {
nanos?: number
secs: number
}
export interface CheckResult {
backend: string
command_line: string[]
decision: (("ask" | "refuse" | "run") | null)
effect: (("bare" | "edit" | "reach" | "read") | null)
enforcement: {
[k: string]: ("best_effort" | "enforced" | "none") | undefined
}
grant: (string | null)
plan: ResolvedManifest
warnings: string[]
}
/**
 * The manifest with every default filled in and every path resolved. `run_as`: the user whose
 * rights the command has, where a daemon of root gives up root for the workspace's owner.
 */
export interface ResolvedManifest {
base: ("host" | "minimal")
cwd: string
env: [string, string][]
fs_deny: string[]
fs_read_allow: string[]
fs_write_allow: string[]
image: (string | null)
max_cpu_secs: (number | null)
max_cpus: (number | null)
max_file_bytes: (number | null)
max_memory_bytes: (number | null)
max_output_bytes: (number | null)
max_processes: (number | null)
network: Network
protected: string[]
run_as: (string | null)
shm_bytes: (number | null)
syscall_policy: ("baseline" | "inherit" | "strict")
timeout_secs: (number | null)
tmp_bytes: (number | null)
}
export interface CopyParams {
from: string
recursive?: boolean
sandbox: string
to: string
}
export interface DecideParams {
approval: string
choice: string
digest: string
message?: (string | null)
}
export interface DenialSeen {
attempt?: number
denial: Denial
execution_id: string
}
/**
 * `approval`: the one that the execution waits for.
 */
export interface Detached {
approval?: string
execution_id: string
}
export interface Event {
cursor: string
record: Record
subscription: string
}
export interface ExecuteParams {
approval_wait_secs?: (number | null)
argv: string[]
backend?: (string | null)
capture?: (boolean | CaptureParams | null)
cwd?: (string | null)
detach?: boolean
execution_id?: (string | null)
explain?: boolean
fds?: (PassedDescriptors | null)
manifest?: (Manifest | null)
on_denial?: (("offer" | "report" | "retry") | null)
preset?: (string | null)
pty?: (PtySize | null)
sandbox?: (string | null)
session?: (string | null)
stderr?: ("stdout" | null)
stdin?: (string | Base64Data | null)
stdin_open?: boolean
stream?: boolean
workspace?: (string | null)
}
/**
 * Indexes into the descriptors that came (SCM_RIGHTS) with the frame's first byte.
 */
export interface PassedDescriptors {
stderr?: (number | null)
stdin?: (number | null)
stdout?: (number | null)
}
/**
 * `echo`: whether the terminal shows what is written to it. `stderr`: "pipe" gives the command
 * a stderr of its own beside the terminal.
 */
export interface PtySize {
cols?: number
echo?: boolean
rows?: number
stderr?: ("pipe" | "terminal")
}
/**
 * `network_usage` is filled where the network goes through the gate (allow_hosts),
 * `explanation` with `explain`. `backend` is null if it was cancelled while it waited for an
 * approval. `grants` are those that widened the plan, `approval` is the one that allowed it.
 * `budget`: the limit that was used up, where the outcome is `budget`. `left_processes` is
 * absent if the command left none, or where they are not known.
 * `warnings`: what was not protected, what should be looked at before it is used outside, and
 * allowed hosts that could not be reached.
 */
export interface ExecuteResult {
approval: (string | null)
attempts: Attempt[]
backend: (string | null)
budget?: BudgetNotice
denials: Denial[]
duration_ms: number
enforcement: {
[k: string]: ("best_effort" | "enforced" | "none") | undefined
}
execution_id: string
exit_code: (number | null)
explanation: (Explanation | null)
grants: string[]
left_processes?: LeftProcesses
network_usage: HostUsage[]
outcome: ("budget" | "cancelled" | "cpu" | "exited" | "file_size" | "isolation_lost" | "memory" | "output_limit" | "processes" | "signaled" | "timeout")
session: (string | null)
signal: (number | null)
stderr: Captured
stdout: Captured
usage: Usage
warnings: string[]
widening: (Widening | null)
}
/**
 * `missing`: the fields to add. `manifest`: what was asked for with these added, whole.
 * 
 * It was run under `preset` (and `workspace`), if any: the manifest is meant on top of that.
 * `secrets`: paths among the needs that hold secrets; they are never in the manifest.
 */
export interface Explanation {
manifest: {
[k: string]: unknown | undefined
}
missing: {
[k: string]: unknown | undefined
}
needs: NeedRow[]
preset: (string | null)
secrets: string[]
truncated: boolean
workspace: (string | null)
}
/**
 * One thing that was refused. `grant`: the entry of the manifest that covers it.
 */
export interface NeedRow {
access: ("limit" | "network" | "read" | "syscall" | "write")
grant: (string | null)
note: string
operation: string
status: ("needed" | "optional" | "refused" | "secret")
target: string
}
/**
 * Processes that the command left running when it ended by itself, and that were ended with its
 * sandbox. `names`: up to four different ones, as the processes call themselves.
 */
export interface LeftProcesses {
count: number
names: string[]
}
/**
 * What an execution did with one host at one port; bytes as the command sees them.
 */
export interface HostUsage {
connections: number
host: string
port: number
received_bytes: number
refused: number
sent_bytes: number
}
export interface Usage {
cpu_ms: number
max_rss_bytes: number
}
/**
 * The approval that would allow what was denied, and how it was resolved.
 */
export interface Widening {
add: {
[k: string]: unknown | undefined
}
approval: string
choice: (string | null)
message: (string | null)
state: string
}
/**
 * `outcome`, `exit_code` and `signal` of one that has ended; none: it could not be started.
 * `watched`: folders in which protected files that appear are moved aside while it runs.
 */
export interface ExecutionInfo {
argv: string[]
backend: string
detached: boolean
execution_id: string
exit_code: (number | null)
outcome: (("budget" | "cancelled" | "cpu" | "exited" | "file_size" | "isolation_lost" | "memory" | "output_limit" | "processes" | "signaled" | "timeout") | null)
sandbox: (string | null)
signal: (number | null)
started_ms: number
state: ("ended" | "pending" | "running")
watched: string[]
}
export interface ExecutionList {
executions: ExecutionInfo[]
}
/**
 * `ended`: also detached executions that have ended, as long as their results are kept.
 */
export interface ExecutionListParams {
ended?: boolean
}
export interface ExecutionRef {
execution_id: string
}
/**
 * `pty`, `stdin_open`: how it can be attached to. `job_control`: the stop key of its terminal
 * (Ctrl-Z) is for jobs of its own: it is a shell.
 */
export interface ExecutionStatus {
job_control: boolean
pty: boolean
result: (ExecuteResult | null)
state: ("ended" | "pending" | "running")
stdin_open: boolean
}
export interface Exited {
attempt?: number
execution_id: string
exit_code: (number | null)
outcome: ("budget" | "cancelled" | "cpu" | "exited" | "file_size" | "isolation_lost" | "memory" | "output_limit" | "processes" | "signaled" | "timeout")
signal: (number | null)
}
/**
 * `bytes` of a file of `size`, beginning at the offset.
 */
export interface FileData {
bytes: number
data: string
encoding: ("base64" | "utf-8")
eof: boolean
size: number
}
/**
 * `target`: where a symlink leads, with `follow` false.
 */
export interface FileStatus {
mode: number
mtime_ms: number
size: number
target: (string | null)
type: ("block" | "char" | "dir" | "fifo" | "file" | "socket" | "symlink")
uid: number
}
/**
 * Either `data` or `base64`. Without `append` and `offset` the file is replaced.
 */
export interface FileWriteParams {
append?: boolean
base64?: (string | null)
data?: (string | null)
mode?: (number | null)
offset?: (number | null)
parents?: boolean
path: string
sandbox: string
}
/**
 * `name` is relative to the folder that was listed. `masked`: what it holds is hidden, and
 * reading it is an error.
 */
export interface FolderEntry {
masked: boolean
mode: number
mtime_ms: number
name: string
size: number
type: ("block" | "char" | "dir" | "fifo" | "file" | "socket" | "symlink")
}
export interface FolderList {
entries: FolderEntry[]
truncated: boolean
}
/**
 * `listen`: a Unix socket in the daemon's own folder, or a port of the host's loopback, which
 * every user of the machine can connect to.
 */
export interface ForwardParams {
listen?: ("tcp" | "unix")
port: number
sandbox: string
}
/**
 * `port`: the sandbox's own, which `endpoint` leads to.
 */
export interface Forwarded {
endpoint: string
forward: string
port: number
}
/**
 * `reach` of a run grant: what the sandbox can that it allows any command in.
 */
export interface GrantInfo {
add: ({
[k: string]: unknown | undefined
} | null)
expires: (string | null)
grant: string
kind: ("egress" | "refuse" | "run" | "widen")
match: (string | null)
reach: (Reach | null)
scope: ("always" | "session")
session: (string | null)
workspace: (string | null)
}
export interface GrantList {
grants: GrantInfo[]
}
export interface GrantListParams {
session?: (string | null)
}
export interface GrantRef {
grant: string
}
export interface InitializeParams {
client?: (Party | null)
}
export interface Party {
name: string
version?: string
}
/**
 * `backend_setting`: the backend that the daemon's settings name, or `auto`. `environment`: the
 * daemon's own SANDBOXD_* variables, without keys; those of a client have no effect on it.
 */
export interface InitializeResult {
backend: (string | null)
backend_setting: string
capabilities: {
[k: string]: number | undefined
}
environment: {
[k: string]: string | undefined
}
presets: string[]
protocol: number
server: Party
warnings: string[]
}
export interface ListParams {
limit?: number
path: string
recursive?: boolean
sandbox: string
}
export interface MkdirParams {
mode?: (number | null)
parents?: boolean
path: string
sandbox: string
}
export interface NoParams {

}
/**
 * The answer `{}`.
 */
export interface Nothing {

}
export interface Output {
attempt?: number
data: string
encoding: ("base64" | "utf-8")
execution_id: string
seq: number
stream: ("stderr" | "stdout")
}
export interface PathParams {
path: string
sandbox: string
}
/**
 * Long work before a command runs, of an execution or of a sandbox that is being created (its
 * name or id). `phase`: `image` in bytes, `start` of a remote sandbox. `total` is null where it
 * is not known.
 */
export interface Progress {
done: number
execution_id?: string
phase: string
sandbox?: string
total: (number | null)
}
/**
 * `path` is absolute as the sandbox sees it, or relative to the workspace. At most 8 MiB a
 * call.
 */
export interface ReadParams {
length?: (number | null)
offset?: number
path: string
sandbox: string
}
export interface RealPath {
path: string
}
export interface RemoveParams {
path: string
recursive?: boolean
sandbox: string
}
export interface RenameParams {
from: string
sandbox: string
to: string
}
export interface ResizeParams {
cols: number
execution_id: string
rows: number
}
export interface SandboxCounts {
persistent: number
warm: number
}
/**
 * `name`: unique for the user while the sandbox lives. `scope`: with what it ends.
 */
export interface SandboxCreateParams {
approval_wait_secs?: (number | null)
backend?: (string | null)
idle_secs?: (number | null)
manifest?: (Manifest | null)
name?: (string | null)
on_denial?: (("offer" | "report" | "retry") | null)
preset?: (string | null)
scope?: ("connection" | "session" | "user")
session?: (string | null)
workspace?: (string | null)
}
export interface SandboxCreated {
approval: (string | null)
backend: (string | null)
name: (string | null)
sandbox: string
workspace: (string | null)
}
/**
 * `lost`: its isolation or its init is gone; commands are refused.
 */
export interface SandboxDetails {
backend: string
created_ms: number
executions: number
forwards: Forwarded[]
name: (string | null)
sandbox: string
scope: ("connection" | "session" | "user")
session: (string | null)
state: ("lost" | "up")
watched: string[]
workspace: (string | null)
}
/**
 * `watched`: folders in which protected files that appear are moved aside while it exists.
 */
export interface SandboxInfo {
backend: string
created_ms: number
executions: number
name: (string | null)
sandbox: string
scope: ("connection" | "session" | "user")
session: (string | null)
watched: string[]
workspace: (string | null)
}
export interface SandboxList {
sandboxes: SandboxInfo[]
}
/**
 * `sandbox`: its id or name.
 */
export interface SandboxRef {
sandbox: string
}
export interface SessionAttachParams {
session: string
token: string
}
export interface SessionClosed {
approvals: number
executions: number
}
export interface SessionInfo {
approvals: number
budget: Budget
connections: number
depth: number
executions: number
mode: ("auto_edit" | "default" | "force")
name: (string | null)
on_denial: ("offer" | "report" | "retry")
opened_ms: number
parent: (string | null)
plan: boolean
preset: (string | null)
session: string
state: ("closed" | "exhausted" | "open")
title: (string | null)
usage: SessionUsage
workspace: (string | null)
}
export interface SessionList {
sessions: SessionInfo[]
}
/**
 * `mode` is default, auto_edit, force or plan, or one of their aliases.
 */
export interface SessionOpenParams {
budget?: (Budget | null)
linger_secs?: (number | null)
mode?: string
name?: (string | null)
on_denial?: (("offer" | "report" | "retry") | null)
parent?: (string | null)
plan?: (boolean | null)
preset?: (string | null)
title?: (string | null)
token?: (string | null)
workspace?: (string | null)
}
/**
 * `tmp`: whether the session's commands share a /tmp, or each has a fresh one.
 */
export interface SessionOpened {
approvals: number
budget: Budget
connections: number
depth: number
executions: number
mode: ("auto_edit" | "default" | "force")
name: (string | null)
on_denial: ("offer" | "report" | "retry")
opened_ms: number
parent: (string | null)
plan: boolean
preset: (string | null)
resumed: boolean
session: string
state: ("closed" | "exhausted" | "open")
title: (string | null)
tmp: ("fresh" | "session")
token: string
usage: SessionUsage
workspace: (string | null)
}
/**
 * Without `session`: the connection's own.
 */
export interface SessionRef {
session?: (string | null)
}
export interface SessionUpdateParams {
budget?: (Budget | null)
mode?: (string | null)
on_denial?: (("offer" | "report" | "retry") | null)
plan?: (boolean | null)
preset?: (string | null)
session?: (string | null)
title?: (string | null)
workspace?: (string | null)
}
export interface SignalParams {
execution_id: string
signal: (number | string)
}
export interface Started {
attempt?: number
backend: string
execution_id: string
}
export interface StatParams {
follow?: boolean
path: string
sandbox: string
}
/**
 * `log`: the file that the daemon logs to, or the command that shows its log, if known.
 */
export interface StatusResult {
approvals: number
approvers: number
backend: (string | null)
backend_setting: string
backends: BackendStatus[]
bwrap_available: boolean
cgroup_version: number
clients: number
executions: number
landlock_abi: number
log: (string | null)
pid: number
sandboxes: SandboxCounts
sessions: number
uptime_ms: number
version: string
warnings: string[]
}
/**
 * `types` takes names of records and patterns as `approval.*`.
 */
export interface SubscribeParams {
after?: (string | null)
role?: ("approver" | "observer")
session?: (string | null)
token?: (string | null)
types?: (string[] | null)
}
/**
 * `gap`: records after `after` are gone already.
 */
export interface Subscribed {
cursor: string
gap: boolean
pending: ApprovalInfo[]
role: ("approver" | "observer")
subscription: string
}
export interface UnforwardParams {
forward: string
sandbox: string
}
export interface UnsubscribeParams {
subscription: string
}
export interface Verified {
broken_at: (number | null)
head: Head
ok: boolean
records: number
}
/**
 * `timeout_secs`: after it the answer is the state instead of a result.
 */
export interface WaitParams {
execution_id: string
timeout_secs?: (number | null)
}
export interface WriteParams {
base64?: (string | null)
data?: (string | null)
execution_id: string
}
export interface Written {
bytes: number
}
