// Generated from the OpenAPI document by `make dashboard` (generate_types.py). Do not edit.

export interface Answer {
  component: string;
  text: string;
  code: string;
}

export interface Answers {
  answers: Answer[];
}

export interface ApiKeys {
  keys: KeyFacts[];
}

export interface Attempt {
  claim: string;
  node: string;
  worker: string | null;
  pid: number | null;
  started_ms: number;
  duration_ms: number;
  outcome: string;
  error: string | null;
  cause: string | null;
  cause_code: string | null;
}

export interface BulkChanged {
  count: number;
  refused: number;
  next: string | null;
  searched_ms: number | null;
}

export interface BulkIn {
  filter?: string | null;
  ids?: string[] | null;
  all?: boolean;
  dry_run?: boolean;
  after?: string | null;
}

export interface Changed {
  count: number;
  more: boolean;
}

export interface ClaimRow {
  id: string;
  queue: string;
  label: string | null;
  claim: string;
  node: string;
  worker: string | null;
  started_ms: number;
  cancel_ms: number | null;
  item: string | null;
}

export interface Claims {
  claims: ClaimRow[];
  next: string | null;
}

export interface Component {
  component: string;
  node: string;
  crew: string | null;
  status: string;
  flags: string[];
  reason: string | null;
  text: string | null;
  pid: number | null;
  incarnation: string | null;
  current_job: string | null;
  last_heartbeat_ms: number | null;
  restart_count: number;
  restarts_total: number;
  last_restart_ms: number | null;
  exit_code: number | null;
  signal: number | null;
  created_at_ms: number;
  metadata: Record<string, unknown>;
  is_healthy: boolean;
  cause: string | null;
  cause_code: string | null;
}

export interface ComponentHealth {
  component: string;
  node: string;
  crew: string | null;
  status: string;
  flags: string[];
  reason: string | null;
  text: string | null;
  pid: number | null;
  incarnation: string | null;
  current_job: string | null;
  last_heartbeat_ms: number | null;
  restart_count: number;
  restarts_total: number;
  last_restart_ms: number | null;
  exit_code: number | null;
  signal: number | null;
  created_at_ms: number;
  metadata: Record<string, unknown>;
  is_healthy: boolean;
  cause: string | null;
  cause_code: string | null;
  well: boolean;
}

export interface Concurrency {
  crews: CrewConcurrency[];
}

export interface CrashDetail {
  id: string;
  component: string;
  crew: string;
  incarnation: string;
  pid: number | null;
  reason: string;
  text: string;
  exit_code: number | null;
  signal: number | null;
  job: string | null;
  memory: number | null;
  uptime_ms: number | null;
  charged: boolean;
  follows: string;
  stacks: string;
  lines: string[];
  frames: string[];
  age_ms: number;
  node: string;
  at_ms: number;
  cause: string;
  cause_code: string | null;
  own_frames: string[];
}

export interface CrashPage {
  crashes: CrashRecord[];
  next: string | null;
}

export interface CrashRecord {
  id: string;
  component: string;
  crew: string;
  incarnation: string;
  pid: number | null;
  reason: string;
  text: string;
  exit_code: number | null;
  signal: number | null;
  job: string | null;
  memory: number | null;
  uptime_ms: number | null;
  charged: boolean;
  follows: string;
  stacks: string;
  lines: string[];
  frames: string[];
  age_ms: number;
  node: string;
  at_ms: number;
  cause: string;
  cause_code: string | null;
}

export interface CrewConcurrency {
  crew: string;
  configured: number;
  live: number;
  busy: number;
  threads_configured: number | null;
  workers: WorkerThreads[];
}

export interface CrewInfo {
  crew: string;
  queue: string;
  configured: number;
  live: number;
}

export interface CrewReadiness {
  crew: string;
  queue: string;
  ready: boolean;
  reason: string | null;
}

export interface CrewRow {
  name: string;
  queue: string;
  handler: string;
  workers: number;
  max_attempts: number;
  timeout_ms: number | null;
  priority: number;
  limit: number | null;
  limit_per_key: number | null;
  rate: string | null;
  rate_per_key: string | null;
  hide: string[];
  scaled: number | null;
}

export interface Crews {
  crews: CrewRow[];
}

export interface Diagnosed {
  store: string;
  status: Severity | null;
  headline: string;
  findings: Finding[];
  others: Other[];
  at_ms: number;
  well: boolean;
}

export interface DrainIn {
  scope?: string | null;
  end?: boolean;
}

export interface EndIn {
  crew?: string | null;
  queue?: string | null;
  label?: string | null;
  priority?: number | null;
  delay_ms?: number;
  run_at_ms?: number | null;
  max_attempts?: number | null;
  timeout_ms?: number | null;
  limit_key?: string | null;
  tags?: string[];
  share?: string | null;
  sequence?: string | null;
  expires_ms?: number | null;
  meta?: Record<string, unknown> | null;
  traceparent?: string | null;
}

export interface FailureGroup {
  cause: string;
  where: string | null;
  count: number;
  queues: string[];
  newest: string;
  last_ms: number | null;
  filter: string;
}

export interface Failures {
  groups: FailureGroup[];
  count: number;
  searched_ms: number | null;
}

export interface Fault {
  pointer: string;
  detail: string;
}

export interface Finding {
  severity: Severity;
  cause: string;
  about: string;
  text: string;
  remedy: string;
  short: string;
  since_ms: number | null;
}

export interface Findings {
  status: Verdict;
  reasons: string[];
}

export interface FlowBody {
  id: string;
  name: string;
  state: "cancelled" | "done" | "failed" | "running";
  counts: FlowCounts;
  created_ms: number;
  ended_ms: number | null;
  ends: number;
}

export interface FlowCounts {
  queued: number;
  following: number;
  running: number;
  done: number;
  failed: number;
  cancelled: number;
}

export interface FlowDetail {
  id: string;
  name: string;
  state: "cancelled" | "done" | "failed" | "running";
  counts: FlowCounts;
  created_ms: number;
  ended_ms: number | null;
  ends: number;
  cancel_ms: number | null;
  on_end: string | null;
  stages: FlowStage[];
}

export interface FlowIdentity {
  id: string;
}

export interface FlowIn {
  name: string;
  order?: "flow" | "arrival";
  on_end?: EndIn | null;
  jobs: FlowJobIn[];
}

export interface FlowJobIn {
  crew?: string | null;
  queue?: string | null;
  payload?: unknown;
  ref?: string | null;
  after?: (number | string)[];
  label?: string | null;
  key?: string | null;
  priority?: number | null;
  delay_ms?: number;
  run_at_ms?: number | null;
  max_attempts?: number | null;
  timeout_ms?: number | null;
  limit_key?: string | null;
  tags?: string[];
  if_failed?: "fail" | "run";
  share?: string | null;
  sequence?: string | null;
  unique_for_ms?: number | null;
  replace?: boolean;
  expires_ms?: number | null;
  meta?: Record<string, unknown> | null;
  traceparent?: string | null;
}

export interface FlowMade {
  id: string;
  name: string;
  jobs: Made[];
}

export interface FlowPage {
  flows: FlowRecord[];
  next: string | null;
}

export interface FlowRecord {
  id: string;
  name: string;
  state: "cancelled" | "done" | "failed" | "running";
  counts: FlowCounts;
  created_ms: number;
  ended_ms: number | null;
  ends: number;
  cancel_ms: number | null;
  on_end: string | null;
}

export interface FlowRemoval {
  topic: string;
  timestamp_ms: number;
  type: "flow_update";
  removed: boolean;
  flow: FlowIdentity;
}

export interface FlowStage {
  queue: string;
  counts: FlowCounts;
  begun_ms: number | null;
  ended_ms: number | null;
}

export interface FlowUpdate {
  topic: string;
  timestamp_ms: number;
  type: "flow_update";
  flow: FlowBody;
}

export interface Health {
  status: Verdict;
  reasons: string[];
  components: Component[];
}

export interface HealthBody {
  status: Verdict;
  errors: string[];
}

export interface HealthUpdate {
  topic: string;
  timestamp_ms: number;
  type: "health_update";
  health: HealthBody;
}

export interface HistogramStatus {
  bounds: number[];
  counts: number[];
  total: number;
}

export interface HistoryPage {
  snapshots: Snapshot[];
  next: string | null;
}

export interface Info {
  version: string;
  node: string;
  supervisor: SupervisorInfo | null;
  worker_enabled: boolean;
  embed_workers: boolean;
  workers: CrewInfo[];
  queues: string[];
  pages: Page[];
}

export interface JobBody {
  id: string;
  queue: string;
  label: string | null;
  item: string | null;
  state: State;
  reason: string | null;
  failures: number;
  attempts: number;
  crashes: number;
  worker: string | null;
  node: string | null;
  progress: Progress | null;
  error: string | null;
  cause: string | null;
  cause_code: string | null;
  result: unknown;
  tags: string[];
  flow: string | null;
  waits_for: number;
  meta: Record<string, unknown> | null;
  cut: string[];
}

export interface JobDetail {
  id: string;
  queue: string;
  label: string | null;
  payload: unknown;
  state: State;
  priority: number;
  run_at_ms: number;
  failures: number;
  attempts: number;
  max_attempts: number;
  crashes: number;
  interruptions: number;
  timeout_ms: number | null;
  key: string | null;
  progress: Progress | null;
  result: unknown;
  error: string | null;
  cause: string | null;
  cause_code: string | null;
  reason: string | null;
  created_ms: number;
  started_ms: number | null;
  finished_ms: number | null;
  claim: string | null;
  node: string | null;
  worker: string | null;
  limit_key: string | null;
  item: string | null;
  cancel_ms: number | null;
  tags: string[] | null;
  seq: number;
  flow: string | null;
  parent: string | null;
  waits_for: number;
  share: string | null;
  sequence: string | null;
  expires_at_ms: number | null;
  meta: Record<string, unknown> | null;
  traceparent: string | null;
  own_frames: string[];
  attempt_history: Attempt[];
  crash_reports: CrashRecord[];
  related: Related;
  predecessors: JobLink[];
  followers: JobLink[];
  children: JobLink[];
}

export interface JobIdentity {
  id: string;
}

export interface JobIn {
  crew?: string | null;
  queue?: string | null;
  payload?: unknown;
  label?: string | null;
  key?: string | null;
  priority?: number | null;
  delay_ms?: number;
  run_at_ms?: number | null;
  max_attempts?: number | null;
  timeout_ms?: number | null;
  limit_key?: string | null;
  tags?: string[];
  after?: string[];
  if_failed?: "fail" | "run";
  flow?: string | null;
  share?: string | null;
  sequence?: string | null;
  unique_for_ms?: number | null;
  replace?: boolean;
  expires_ms?: number | null;
  meta?: Record<string, unknown> | null;
  traceparent?: string | null;
}

export interface JobLink {
  id: string;
  queue: string;
  label: string | null;
  state: State;
  reason: string | null;
}

export interface JobPage {
  jobs: JobRecord[];
  next: string | null;
  searched_ms: number | null;
}

export interface JobRecord {
  id: string;
  queue: string;
  label: string | null;
  payload: unknown;
  state: State;
  priority: number;
  run_at_ms: number;
  failures: number;
  attempts: number;
  max_attempts: number;
  crashes: number;
  interruptions: number;
  timeout_ms: number | null;
  key: string | null;
  progress: Progress | null;
  result: unknown;
  error: string | null;
  cause: string | null;
  cause_code: string | null;
  reason: string | null;
  created_ms: number;
  started_ms: number | null;
  finished_ms: number | null;
  claim: string | null;
  node: string | null;
  worker: string | null;
  limit_key: string | null;
  item: string | null;
  cancel_ms: number | null;
  tags: string[] | null;
  seq: number;
  flow: string | null;
  parent: string | null;
  waits_for: number;
  share: string | null;
  sequence: string | null;
  expires_at_ms: number | null;
  meta: Record<string, unknown> | null;
  traceparent: string | null;
}

export interface JobRemoval {
  topic: string;
  timestamp_ms: number;
  type: "job_update";
  removed: boolean;
  job: JobIdentity;
}

export interface JobRun {
  id: string;
  state: State;
  created_ms: number;
  started_ms: number | null;
  finished_ms: number | null;
}

export interface JobUpdate {
  topic: string;
  timestamp_ms: number;
  type: "job_update";
  job: JobBody;
}

export interface KeyFacts {
  id: string;
  name: string;
  scopes: string[];
  state: "expired" | "in use" | "revoked";
  created_ms: number;
  expires_ms: number | null;
  used_ms: number | null;
  revoked_ms: number | null;
}

export interface KeyIn {
  name: string;
  scopes: ("read" | "enqueue" | "control")[];
  expires_s?: number | null;
}

export interface LogLine {
  at_ms: number;
  level: string;
  text: string;
  component: string | null;
  job: string | null;
}

export interface LogLines {
  lines: LogLine[];
}

export interface Made {
  id: string;
  queue: string;
  created: boolean;
  replaced: boolean;
}

export interface MadeKey {
  id: string;
  name: string;
  scopes: string[];
  state: "expired" | "in use" | "revoked";
  created_ms: number;
  expires_ms: number | null;
  used_ms: number | null;
  revoked_ms: number | null;
  key: string;
}

export interface MadeMany {
  jobs: Made[];
}

export interface NodeAnswer {
  node: NodeStatus | null;
}

export interface NodeBody {
  name: string;
  status: string;
  reason: string | null;
  drain: string | null;
  machine: string | null;
  version: string | null;
  pid: number | null;
  started_ms: number | null;
  last_beat_ms: number | null;
  beat_age_ms: number | null;
  crews: NodeCrewBody[];
}

export interface NodeCrewBody {
  crew: string;
  queue: string;
  configured: number;
  live: number;
  busy: number;
}

export interface NodeIdentity {
  name: string;
}

export interface NodeRemoval {
  topic: string;
  timestamp_ms: number;
  type: "node_update";
  removed: boolean;
  node: NodeIdentity;
}

export interface NodeStatus {
  node: string;
  pid: number;
  version: string;
  started_ms: number;
  stopping: string | null;
  store: StoreStatus;
  unkillable: UnkillableProcess[];
  tally: TallyStatus;
  workers: NodeWorker[];
  breakers: Record<string, string>;
  paused: string[];
  unserved: Record<string, string>;
  blind: Record<string, string>;
  drain: string | null;
  suspect_after: number;
  verdict: Findings;
}

export interface NodeUpdate {
  topic: string;
  timestamp_ms: number;
  type: "node_update";
  node: NodeBody;
}

export interface NodeWorker {
  component: string;
  crew: string;
  index: number | null;
  status: string;
  flags: string[];
  reason: string | null;
  text: string | null;
  cause: string | null;
  cause_code: string | null;
  shortage: Shortage | null;
  pid: number | null;
  current_job: string | null;
  batch_jobs: string[];
  in_hand: number;
  concurrency: number;
  progress: Progress | null;
  memory: number | null;
  gpus: WorkerGpu[];
  jobs: number;
  restart_count: number;
  restarts_total: number;
  budget: RestartBudget | null;
  exit_code: number | null;
  signal: number | null;
  incarnation: string | null;
  job_s: number | null;
  heartbeat_s: number | null;
  started_s: number | null;
  ready_s: number | null;
  restart_in_s: number | null;
}

export interface Nodes {
  nodes: NodeBody[];
}

export interface Operation {
  who: string;
  verb: string;
  target: string;
  detail: string | null;
  origin: string | null;
  id: number;
  at_ms: number;
}

export interface OperationPage {
  operations: Operation[];
  next: string | null;
}

export interface OrderIn {
  scope?: string | null;
}

export interface Other {
  path: string;
  why: string;
  pid: number | null;
}

export interface Page {
  title: string;
  url: string;
}

export interface Pause {
  scope: string;
  who: string;
  reason: string | null;
  since_ms: number;
  until_ms: number | null;
  left_ms: number | null;
}

export interface PauseIn {
  scope?: string | null;
  reason?: string | null;
  for_s?: number | null;
}

export interface PauseRecurringIn {
  name: string;
  reason?: string | null;
}

export interface Pauses {
  pauses: Pause[];
}

export interface Probe {
  status: string;
  reason?: string | null;
  code?: string | null;
}

export interface ProblemDocument {
  type: string;
  title: string;
  status: number;
  detail: string;
  request_id: string;
  errors?: Fault[];
}

export interface Progress {
  done: number | null;
  total: number | null;
  stage: string | null;
  detail: string | null;
}

export interface Queue {
  queue: string;
  queued: number;
  future: number;
  following: number;
  limited: number;
  running: number;
  done: number;
  failed: number;
  cancelled: number;
  last_done_ms: number | null;
  rate_next_ms: number | null;
  crews: string[];
  paused: boolean;
  oldest_wait_ms: number | null;
  rate: number;
  mean_duration_s: number | null;
  eta_s: number | null;
  wait_p50_s: number | null;
  wait_p95_s: number | null;
  run_p50_s: number | null;
  run_p95_s: number | null;
  unserved: string | null;
}

export interface QueueBody {
  name: string | null;
  queued: number;
  future: number;
  following: number;
  limited: number;
  running: number;
  done: number;
  failed: number;
  cancelled: number;
  rate: number;
  mean_duration_s: number | null;
  eta_s: number | null;
  wait_p50_s: number | null;
  wait_p95_s: number | null;
  run_p50_s: number | null;
  run_p95_s: number | null;
  oldest_wait_s: number | null;
  last_done_ms: number | null;
  rate_next_ms: number | null;
}

export interface QueueHistories {
  queues: QueueHistory[];
}

export interface QueueHistory {
  name: string;
  at_ms: number[];
  waiting: number[];
  running: number[];
  failed: number[];
  rate: number[];
  wait_p50_s: (number | null)[];
  wait_p95_s: (number | null)[];
  run_p50_s: (number | null)[];
  run_p95_s: (number | null)[];
  oldest_wait_s: (number | null)[];
}

export interface QueueIdentity {
  name: string | null;
}

export interface QueueRemoval {
  topic: string;
  timestamp_ms: number;
  type: "queue_update";
  removed: boolean;
  queue: QueueIdentity;
}

export interface QueueUpdate {
  topic: string;
  timestamp_ms: number;
  type: "queue_update";
  queue: QueueBody;
}

export interface Queues {
  queues: Queue[];
}

export interface Readiness {
  ready: boolean;
  reasons: string[];
  crews: CrewReadiness[];
}

export interface Recurrence {
  name: string;
  schedule: string;
  job: string;
  next_run_ms: number;
  last_job: string | null;
  in_words: string;
  queue: string;
  label: string | null;
  paused_ms: number | null;
  paused_by: string | null;
  pause_reason: string | null;
  runs: JobRun[];
}

export interface Recurring {
  recurring: Recurrence[];
}

export interface RecurringIn {
  name: string;
}

export interface Related {
  predecessors: number;
  followers: number;
  children: number;
}

export interface ReleaseIn {
  claim: string;
}

export interface RestartBudget {
  rapid_left: number;
  lifetime_left: number;
}

export interface Resync {
  topic: string;
  timestamp_ms: number;
  type: "resync";
  reason: string;
}

export interface ScaleIn {
  scope: string;
  count: number;
}

export type Severity = "error" | "note" | "warning";

export type Shortage = "permanent" | "temporary";

export interface SignIn {
  key: string;
}

export interface SignedIn {
  name: string;
  kind: string;
  scopes: string[];
  csrf: string | null;
  expires_ms: number | null;
}

export interface Snapshot {
  timestamp_ms: number;
  components: unknown;
}

export type Sort = "newest" | "oldest" | "longest" | "priority";

export type State = "cancelled" | "done" | "failed" | "queued" | "running";

export interface StoreStatus {
  address: string;
  failing: string | null;
  code: string | null;
  waiting_s: number | null;
  notified: boolean | null;
  unnotified: string | null;
}

export interface SupervisorInfo {
  node: string | null;
  pid: number | null;
  version: string | null;
  started_ms: number | null;
  answers: boolean;
  stopping: string | null;
}

export interface Tally {
  queued: number;
  running: number;
  done: number;
  failed: number;
  cancelled: number;
  searched_ms: number | null;
}

export interface TallyStatus {
  wait: Record<string, HistogramStatus>;
  run: Record<string, HistogramStatus>;
  ended: ([string, string, number])[];
  crashes: ([string, string, number])[];
  restarts: Record<string, number>;
  claim: HistogramStatus;
  settle: HistogramStatus;
  events_dropped: number;
}

export interface UnkillableProcess {
  component: string;
  pid: number;
}

export type Verdict = "degraded" | "error" | "healthy";

export interface WorkerBody {
  component: string;
  crew: string;
  index: number | null;
  status: string;
  flags: string[];
  reason: string | null;
  text: string | null;
  cause: string | null;
  cause_code: string | null;
  shortage: Shortage | null;
  pid: number | null;
  current_job: string | null;
  batch_jobs: string[];
  in_hand: number;
  concurrency: number;
  progress: Progress | null;
  memory: number | null;
  gpus: WorkerGpu[];
  jobs: number;
  restart_count: number;
  restarts_total: number;
  budget: RestartBudget | null;
  exit_code: number | null;
  signal: number | null;
  node: string;
  job_since_ms: number | null;
  restart_at_ms: number | null;
  started_ms: number | null;
}

export interface WorkerGpu {
  uuid: string;
  index: number | null;
  name: string;
  memory: number | null;
  memory_used: number | null;
  worker_memory: number | null;
  utilization: number | null;
}

export interface WorkerHistory {
  component: string;
  node: string | null;
  at_ms: number;
  moments: WorkerMoment[];
  memory_at_ms: number[];
  memory: number[];
}

export interface WorkerIdentity {
  component: string;
  crew: string;
  index: number | null;
  node: string;
}

export interface WorkerMoment {
  at_ms: number;
  kind: string;
  what: string;
  text: string | null;
  pid: number | null;
  job: string | null;
  duration_ms: number | null;
}

export interface WorkerRemoval {
  topic: string;
  timestamp_ms: number;
  type: "worker_update";
  removed: boolean;
  worker: WorkerIdentity;
}

export interface WorkerStacks {
  component: string;
  pid: number | null;
  job: string | null;
  code: string;
  text: string;
  stacks: string;
  threads: string;
  memory: number | null;
  cpu: number | null;
  cpu_s: number | null;
}

export interface WorkerStatus {
  component: string;
  node: string;
  crew: string | null;
  status: string;
  flags: string[];
  reason: string | null;
  text: string | null;
  pid: number | null;
  incarnation: string | null;
  current_job: string | null;
  last_heartbeat_ms: number | null;
  restart_count: number;
  restarts_total: number;
  last_restart_ms: number | null;
  exit_code: number | null;
  signal: number | null;
  created_at_ms: number;
  metadata: Record<string, unknown>;
  is_healthy: boolean;
  cause: string | null;
  cause_code: string | null;
  index: number | null;
  progress: Progress | null;
  memory: number | null;
  gpus: WorkerGpu[];
  in_hand: number;
  concurrency: number;
  batch_jobs: string[];
  jobs: number | null;
  budget: RestartBudget | null;
  restart_in_s: number | null;
}

export interface WorkerThreads {
  component: string;
  pid: number | null;
  busy: boolean;
  threads: number | null;
}

export interface WorkerUpdate {
  topic: string;
  timestamp_ms: number;
  type: "worker_update";
  worker: WorkerBody;
}

export type LiveEvent = NodeUpdate | NodeRemoval | WorkerUpdate | WorkerRemoval | QueueUpdate | QueueRemoval | JobUpdate | JobRemoval | FlowUpdate | FlowRemoval | HealthUpdate | Resync;
