# rlship.sh: log metrics of a training job from a POSIX shell (dash, busybox ash, bash, ...), without any dependency but
# od, awk, date, ls, mkdir, chmod and the like.
#
#     . ./rlship.sh
#     rlship_open outputs/grpo-7b launcher
#     rlship_log 12 loss 0.53 lr 3e-4
#     rlship_barrier 12
#     rlship_close
#
# README.md beside this file is the page of usage. Every function returns 0, whatever happens, also under `set -eu`; it
# sets no option, trap or IFS, and its variables begin with _rlship. Each call appends its line before it returns. What
# cannot be done is left out, counted, told by a `gap` record, and said once on stderr.
#
# SPDX-License-Identifier: Apache-2.0

_rlship_file='' _rlship_dir='' _rlship_nl='
' _rlship_tab='	'

# rlship_open [DIR [ACTOR]] [rank=N] [world=N] [replica=NAME] [attempt=N] [axis=NAME] [parent=ID]
# What is not given, or empty, comes from RLSHIP_DIR, RLSHIP_ACTOR, RLSHIP_RANK..., else from the launcher's variables.
rlship_open() { _rlship_open "$@" || :; }

# rlship_define METRIC [reduce=NAME,...] [unit=TEXT] [per_rank=1] [stream=1]
rlship_define() { _rlship_on && _rlship_define "$@" || :; }

# rlship_log STEP [NAME VALUE]...                 STEP may be '': a stream record
rlship_log() { _rlship_on && _rlship_log log '' "$@" && _rlship_reach log || :; }

# rlship_log_weighted STEP WEIGHT [NAME VALUE]...
rlship_log_weighted() { _rlship_on && _rlship_log weighted "${2-}" "${1-}" "$@" && _rlship_reach log || :; }

# rlship_log_list STEP NAME VALUES [WEIGHTS]      numbers with commas between them
rlship_log_list() { _rlship_on && _rlship_list "${1-}" "${2-}" "${3-}" "${4-}" && _rlship_reach log || :; }

# rlship_span STEP NAME SECONDS [ERROR]           something that ended just now
rlship_span() { _rlship_on && _rlship_span "${1-}" "${2-}" "${3-}" "${4-}" || :; }

# rlship_run STEP NAME COMMAND [ARGUMENT]...      a span around a command, whose status it returns
rlship_run() {
  _rlship_run_step=${1-} _rlship_run_name=${2-} _rlship_run_status=0 _rlship_run_from=
  if [ "$#" -ge 2 ]; then shift 2; else shift "$#"; fi
  if _rlship_on; then _rlship_now; _rlship_run_from=$_rlship_ms; fi
  "$@" || _rlship_run_status=$?
  if [ -n "$_rlship_run_from" ]; then
    _rlship_now
    [ "$_rlship_ms" -ge "$_rlship_run_from" ] || _rlship_run_from=$_rlship_ms
    _rlship_seconds "$((_rlship_ms - _rlship_run_from))"
    [ "$_rlship_run_status" = 0 ] || set -- "exit $_rlship_run_status"
    [ "$_rlship_run_status" != 0 ] || set -- ''
    rlship_span "$_rlship_run_step" "$_rlship_run_name" "$_rlship_s" "$1"
  fi
  return "$_rlship_run_status"
}

# rlship_event STEP NAME [KEY=TEXT | KEY:=JSON]...
rlship_event() { _rlship_on && _rlship_event "$@" || :; }

# rlship_sample STEP TABLE SCORE [COLUMN=TEXT | COLUMN:=JSON]...    SCORE may be ''
rlship_sample() { _rlship_on && _rlship_sample "$@" || :; }

# rlship_config [KEY=TEXT | KEY:=JSON]...     what was set, such as hyper-parameters; a later call updates by key
rlship_config() { _rlship_on && _rlship_note config "$@" || :; }

# rlship_summary [KEY=TEXT | KEY:=JSON]...    results
rlship_summary() { _rlship_on && _rlship_note summary "$@" || :; }

# rlship_run_data [MEMBER=TEXT | MEMBER:=JSON]...    name= notes= group= project= entity= job_type= tags:=[...] exit_code:=N
rlship_run_data() { _rlship_on && _rlship_note '' "$@" || :; }

# rlship_ledger STEP HOP KEY [n=N] [tokens=ROWS] [mask=ROWS] [reward=NUMBERS] [advantage=NUMBERS] [sample=NAMES] [FIELD=ROWS]
#   [version=LEAST,GREATEST] [response=N] [part=I,K] [retry=N] [passes=N] [precision=bf16] [why=TEXT]
# What a group of samples is at one hop of its way. Commas divide numbers and names, semicolons the rows of samples. Of all
# keys a share is kept (RLSHIP_LEDGER_SHARE, 1/8), the same in every process.
rlship_ledger() { _rlship_on && _rlship_ledger "$@" || :; }

# rlship_weights STEP VERSION [FINGERPRINT]    which weights a version has, on both sides of a weight sync
rlship_weights() { _rlship_on && _rlship_weights "${1-}" "${2-}" "${3-}" || :; }

# rlship_barrier STEP    nothing more of steps up to this one will come
rlship_barrier() { _rlship_on && _rlship_mark barrier "${1-}" && _rlship_reach barrier || :; }

# rlship_rollback STEP   the process went back, to do this step again
rlship_rollback() { _rlship_on && _rlship_mark rollback "${1-}" && _rlship_reach rollback || :; }

# rlship_flush           lines are in the file already; on a network filesystem this waits until others see them
rlship_flush() { _rlship_on && { _rlship_put '' ''; _rlship_sync now; } || :; }

# rlship_close           later calls do nothing
rlship_close() { _rlship_on && _rlship_close || :; }

# --- the file ---

_rlship_on() { [ -n "$_rlship_dir" ]; }

# The process itself: a subshell has another number than $$, and must not write into its parent's file.
_rlship_self() {
  _rlship_pid=$$
  if [ -n "${BASHPID-}" ]; then
    _rlship_pid=$BASHPID
  elif [ -r /proc/self/stat ]; then
    IFS=' ' read -r _rlship_pid _rlship_rest </proc/self/stat
  fi
}

# Milliseconds of Unix time in _rlship_ms, without starting a process where that can be.
_rlship_now() {
  if [ -n "${EPOCHREALTIME-}" ]; then
    _rlship_s=${EPOCHREALTIME##*[.,]}
    _rlship_ms=${EPOCHREALTIME%%[.,]*}${_rlship_s%???}
    return 0
  fi
  if [ -r /proc/uptime ] && IFS=' ' read -r _rlship_s _rlship_rest </proc/uptime; then
    case $_rlship_s in
    *.??)
      _rlship_up=$((${_rlship_s%.*} * 1000 + 1${_rlship_s#*.} * 10 - 1000))
      # The clock is looked at once a minute, as it may be set.
      if [ -z "$_rlship_boot" ] || [ "$((_rlship_up - _rlship_looked))" -gt 60000 ]; then
        _rlship_date
        _rlship_boot=$((_rlship_ms - _rlship_up)) _rlship_looked=$_rlship_up
      fi
      _rlship_ms=$((_rlship_boot + _rlship_up))
      return 0
      ;;
    esac
  fi
  _rlship_date
}

_rlship_date() {
  _rlship_ms=$(date +%s%N 2>/dev/null) || :
  case $_rlship_ms in
  ????????????????*[!0-9]* | '' | *[!0-9]*) _rlship_ms=$(date +%s)000 ;; # a date without %N
  ????????????????*) _rlship_ms=${_rlship_ms%??????} ;;
  *) _rlship_ms=${_rlship_ms}000 ;;
  esac
}

# Milliseconds as seconds in _rlship_s.
_rlship_seconds() {
  _rlship_s=$(($1 % 1000 + 1000))
  _rlship_s=$(($1 / 1000)).${_rlship_s#1}
}

# `"t":…` of now in _rlship_t.
_rlship_time() {
  _rlship_now
  _rlship_seconds "$_rlship_ms"
  _rlship_t="\"t\":$_rlship_s"
}

# One line on stderr, in a process of its own: without a reader a signal ends the process that writes. Names may hold
# characters that move the cursor.
_rlship_say() { (printf 'rlship: %s\n' "$(printf '%s' "$1" | LC_ALL=C tr '\001-\037\177' ' ')" >&2) || :; }

# What is wrong, once for each topic.
_rlship_tell() { # topic where message
  case $_rlship_told in *" $1 "*) return 0 ;; esac
  _rlship_told="$_rlship_told$1 "
  _rlship_say "$2: $3"
  [ "$1" = write ] && return 0 # it comes when the file can be written again
  _rlship_time
  _rlship_string "$3"
  _rlship_put "{\"kind\":\"event\",$_rlship_t,\"name\":\"rlship_error\",\"attrs\":{\"where\":\"$2\",\"error\":$_rlship_json}}$_rlship_nl" ''
}

# Count a line that is lost.
_rlship_lose() { # step
  if [ -z "$1" ]; then
    _rlship_unstepped=$((_rlship_unstepped + 1))
    return 0
  fi
  if [ "$_rlship_stepped" = 0 ] || [ "$1" -lt "$_rlship_first" ]; then _rlship_first=$1; fi
  if [ "$_rlship_stepped" = 0 ] || [ "$1" -gt "$_rlship_last" ]; then _rlship_last=$1; fi
  _rlship_stepped=$((_rlship_stepped + 1))
}

_rlship_random() { od -An -v -N8 -tx1 /dev/urandom | tr -d ' \n'; }

# Whether a folder is meant for its group: it has the set-group-ID bit (the s or S of ls) and lets the group write, or else
# one above it does, up to the first without the bit. Another process may just have made the one between.
_rlship_shared() { # folder
  up=$1
  while :; do
    case $(ls -ldn "${up:-/}" 2>/dev/null) in
    ?????w[sS]*) return 0 ;;
    ??????[sS]*) case $up in */*) up=${up%/*} ;; *) return 1 ;; esac ;;
    *) return 1 ;;
    esac
  done
}

# Make a folder and those above it. A new one lets its group write where the one above is meant for the group. A umask that
# lets the group not even read is heeded.
_rlship_folder() (
  case $1 in */*) above=${1%/*} ;; *) above=. ;; esac
  if [ -n "$above" ] && [ ! -d "$above" ]; then _rlship_folder "$above" || exit 1; fi
  mkdir "$1" 2>/dev/null || { [ -d "$1" ] && exit 0; exit 1; }
  case $(ls -ldn "$1" 2>/dev/null) in ????r?[xs]*) _rlship_shared "$above" && chmod g+w "$1" 2>/dev/null ;; esac
  exit 0
)

# A file of our own, with its first line and what was defined before. Status 1 where no file can be made.
_rlship_create() {
  if [ ! -d "$_rlship_dir/rlship" ]; then _rlship_folder "$_rlship_dir/rlship" || return 1; fi
  _rlship_id=$(_rlship_random)
  _rlship_safe "$_rlship_actor"
  _rlship_path=$_rlship_part
  _rlship_safe "$_rlship_replica"
  _rlship_path=$_rlship_path-$_rlship_part-r$_rlship_rank
  _rlship_safe "$_rlship_host"
  _rlship_path=$_rlship_dir/rlship/$_rlship_path-$_rlship_part-$_rlship_pid-$_rlship_id.jsonl
  _rlship_head="{\"kind\":\"open\",\"rlship\":1,\"id\":\"$_rlship_id\",$_rlship_who,\"pid\":$_rlship_pid"
  # Which processes it counts among: the kernel's boot and the pid namespace. Linux alone says so.
  if _rlship_space=$(readlink /proc/self/ns/pid 2>/dev/null) && IFS=' ' read -r _rlship_boot_id </proc/sys/kernel/random/boot_id; then
    _rlship_head="$_rlship_head,\"pid_space\":\"$_rlship_boot_id $_rlship_space\""
  fi 2>/dev/null
  [ -z "$_rlship_parent" ] || _rlship_head="$_rlship_head,\"parent\":$_rlship_parent"
  _rlship_time
  _rlship_gaps
  _rlship_again
  # Exclusively, in a subshell as `set -C` is an option of the program's.
  (set -C && printf '%s' "$_rlship_head,$_rlship_t}$_rlship_nl$_rlship_gap$_rlship_defined$_rlship_repeated" >"$_rlship_path") 2>/dev/null || return 1
  _rlship_file=$_rlship_path _rlship_torn='' _rlship_stepped=0 _rlship_unstepped=0
  _rlship_network=1
  case $(stat -f -c %t "$_rlship_file" 2>/dev/null) in
  # ext, xfs, btrfs, tmpfs, ramfs, overlay, zfs, f2fs, bcachefs, vfat, exfat: what stands there others see at once.
  ef53 | 58465342 | 9123683e | 1021994 | 858458f6 | 794c7630 | 2fc12fc1 | f2f52010 | ca451a4e | 4d44 | 2011bab0) _rlship_network='' ;;
  esac
}

# The `gap` records of what is lost in _rlship_gap; the time is in _rlship_t.
_rlship_gaps() {
  _rlship_gap=
  [ "$_rlship_stepped" = 0 ] || _rlship_gap="{\"kind\":\"gap\",\"n\":$_rlship_stepped,\"from\":$_rlship_first,\"to\":$_rlship_last,$_rlship_t}$_rlship_nl"
  [ "$_rlship_unstepped" = 0 ] || _rlship_gap="$_rlship_gap{\"kind\":\"gap\",\"n\":$_rlship_unstepped,$_rlship_t}$_rlship_nl"
}

# Append lines that belong to one step.
_rlship_put() { # lines step
  _rlship_self
  if [ "$_rlship_pid" != "$_rlship_owner" ]; then # a subshell
    [ -z "$_rlship_id" ] || _rlship_parent="\"$_rlship_id\""
    _rlship_ran='' # the parent's file has it
    _rlship_promised=0 _rlship_logged=0 _rlship_under=0
    _rlship_owner=$_rlship_pid _rlship_file='' _rlship_retry='' _rlship_stepped=0 _rlship_unstepped=0
  fi
  if [ -n "$_rlship_retry" ]; then
    _rlship_now
    if [ "$_rlship_ms" -lt "$_rlship_retry" ] && [ "$((_rlship_retry - _rlship_ms))" -le 1000 ]; then
      [ -z "$1" ] || _rlship_lose "$2"
      return 0
    fi
  fi
  if [ -n "$_rlship_file" ] && [ ! -e "$_rlship_file" ]; then # another program removed it, perhaps before the last line
    _rlship_file=''
    _rlship_lose "$_rlship_before"
  fi
  if [ -z "$_rlship_file" ] && ! _rlship_create; then
    _rlship_trouble "$1" "$2"
    return 0
  fi
  _rlship_gap=
  if [ -n "$_rlship_torn" ] || [ "$_rlship_stepped$_rlship_unstepped" != 00 ]; then
    _rlship_time
    _rlship_gaps
    if [ -n "$_rlship_torn" ]; then
      _rlship_again
      _rlship_gap=$_rlship_nl$_rlship_gap$_rlship_defined$_rlship_repeated
    fi
  fi
  [ -n "$_rlship_gap$1" ] || return 0
  if { printf '%s' "$_rlship_gap$1" >>"$_rlship_file"; } 2>/dev/null; then
    _rlship_torn='' _rlship_stepped=0 _rlship_unstepped=0 _rlship_retry='' _rlship_before=$2
    [ -z "$_rlship_network" ] || _rlship_sync
  else
    _rlship_torn=1
    _rlship_trouble "$1" "$2"
  fi
}

# Nothing could be written: the line is given up, and it is tried again in a second.
_rlship_trouble() { # lines step
  [ -z "$1" ] || _rlship_lose "$2"
  _rlship_now
  _rlship_retry=$((_rlship_ms + 1000))
  _rlship_tell write write "nothing can be written in $_rlship_dir/rlship; lines are dropped and counted until it can"
}

# On a network filesystem others see lines once they are synced: twice a second at most, in large jobs less often, and in
# the background unless a call waits for it.
_rlship_sync() { # [now]
  [ -n "$_rlship_network" ] && [ -n "$_rlship_file" ] || return 0
  _rlship_now
  if [ -n "${1-}" ]; then
    _rlship_fdatasync
  elif [ "$_rlship_ms" -ge "$_rlship_sync_at" ]; then
    _rlship_sync_at=$((_rlship_ms + _rlship_every))
    (_rlship_fdatasync &)
  fi
}

_rlship_fdatasync() {
  { sync -d "$_rlship_file" || fsync -d "$_rlship_file" || dd if=/dev/null of="$_rlship_file" conv=notrunc,fdatasync; } </dev/null >/dev/null 2>&1 || :
}

_rlship_close() {
  _rlship_time
  _rlship_put "{\"kind\":\"close\",$_rlship_t,\"reason\":\"exit\"}$_rlship_nl" ''
  _rlship_sync now
  _rlship_dir=
}

# --- JSON ---

# At most 48 letters, digits, `.` and `_` of a part of the file's name, in _rlship_part.
_rlship_safe() {
  _rlship_part=$(printf '%s' "$1" | LC_ALL=C tr -c 'A-Za-z0-9._' '[_*]' | cut -c 1-48)
  case $_rlship_part in '') _rlship_part=_ ;; .*) _rlship_part=_${_rlship_part#.} ;; esac
}

# A text as JSON in _rlship_json, and how many characters it has in _rlship_length.
_rlship_string() {
  case $1 in
  *[!abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:@%+=,\ -]*) ;;
  *)
    _rlship_json="\"$1\"" _rlship_length=${#1}
    return 0
    ;;
  esac
  # Bytes as numbers: no locale and no awk has its own idea of them. What is not UTF-8 becomes U+FFFD.
  _rlship_json=$(printf '%s' "$1" | LC_ALL=C od -An -v -tu1 | LC_ALL=C awk '
    { for (i = 1; i <= NF; i++) b[n++] = $i }
    function rest(i) { return b[i] >= 128 && b[i] < 192 }
    END {
      for (i = 0; i < n; i += size) {
        c = b[i]; size = 1; bad = 0
        if (c < 128) {
          if (c == 34 || c == 92) out = sprintf("\\%c", c)
          else if (c == 10) out = "\\n"
          else if (c == 9) out = "\\t"
          else out = c < 32 ? sprintf("\\u%04x", c) : sprintf("%c", c)
        } else {
          want = c < 194 ? 0 : c < 224 ? 2 : c < 240 ? 3 : c < 245 ? 4 : 0
          for (k = 1; k < want; k++) if (!rest(i + k)) want = 0
          if (want == 3 && c == 237 && b[i + 1] >= 160) { bad = 1; size = 3 } # half a surrogate pair
          else if (!want || (c == 224 && b[i + 1] < 160) || (c == 240 && b[i + 1] < 144) || (c == 244 && b[i + 1] > 143)) bad = 1
          else size = want
          if (bad) out = sprintf("%c%c%c", 239, 191, 189)
          else { out = ""; for (k = 0; k < size; k++) out = out sprintf("%c", b[i + k]) }
        }
        text[count++] = out
      }
      printf "%d \"", count
      for (i = 0; i < count; i++) printf "%s", text[i]
      print "\""
    }') || _rlship_json='0 ""'
  _rlship_length=${_rlship_json%% *}
  _rlship_json=${_rlship_json#* }
}

# A name in _rlship_json; status 1, and told, where it cannot be used.
_rlship_name() { # where name
  _rlship_string "$2"
  [ "$_rlship_length" -ge 1 ] && [ "$_rlship_length" -le 1000 ] && return 0
  _rlship_tell name "$1" "a name has $_rlship_length characters, 1 to 1000 are allowed; it is left out"
  return 1
}

_rlship_digits() { case $1 in '' | *[!0123456789]*) return 1 ;; esac }

# A number as JSON in _rlship_json; status 1 where it is not a number.
_rlship_number() {
  case $1 in
  [Nn][Aa][Nn] | [+-][Nn][Aa][Nn]) _rlship_json='"NaN"' && return 0 ;;
  [Ii]nf | [Ii]nfinity | +[Ii]nf | +[Ii]nfinity | INF) _rlship_json='"Infinity"' && return 0 ;;
  -[Ii]nf | -[Ii]nfinity | -INF) _rlship_json='"-Infinity"' && return 0 ;;
  esac
  _rlship_sign= _rlship_json=${1#+}
  case $_rlship_json in -*) _rlship_sign=- _rlship_json=${_rlship_json#-} ;; esac
  _rlship_whole=${_rlship_json%%[eE]*} _rlship_exponent= _rlship_fraction=
  case $_rlship_json in
  *[eE]*)
    _rlship_exponent=${_rlship_json#*[eE]}
    _rlship_digits "${_rlship_exponent#[+-]}" || return 1
    ;;
  esac
  case $_rlship_whole in
  *.*)
    _rlship_fraction=${_rlship_whole#*.} _rlship_whole=${_rlship_whole%%.*}
    [ -n "$_rlship_whole$_rlship_fraction" ] || return 1
    _rlship_digits "${_rlship_fraction:-0}" || return 1
    ;;
  '') return 1 ;;
  esac
  _rlship_digits "${_rlship_whole:-0}" || return 1
  while :; do case $_rlship_whole in 0?*) _rlship_whole=${_rlship_whole#0} ;; *) break ;; esac; done
  _rlship_json=$_rlship_sign${_rlship_whole:-0}${_rlship_fraction:+.$_rlship_fraction}${_rlship_exponent:+e$_rlship_exponent}
  # What may be too large for a double would spoil its line.
  case $_rlship_exponent in
  '' | -* | ? | ?? | +? | +??) [ "${#_rlship_whole}" -lt 200 ] && return 0 ;;
  esac
  [ "$(printf '%s\n' "$_rlship_json" | LC_ALL=C awk '{ x = $1 + 0; if (x < 0) x = -x; print (x <= 1.7976931348623157e308) }')" = 1 ]
}

# `"step":12,` in _rlship_step, or nothing; status 1, and reported, where a step is not valid.
_rlship_stepped() { # where step
  _rlship_step= _rlship_reached=
  [ -n "$2" ] || [ "$1" = barrier ] || [ "$1" = rollback ] || return 0
  if _rlship_digits "$2" && [ "${#2}" -le 16 ] && [ "$2" -le 9007199254740991 ]; then
    _rlship_step=\"step\":$2,
    case $2 in 0?*) ;; *) _rlship_reached=$2; return 0 ;; esac
  fi
  _rlship_tell step "$1" "step '$2' is not an integer in 0..2^53-1; the call is left out"
  return 1
}

# Note the step of the call that was just made, and report one that does not follow what came before.
# One more than the step of a barrier, of the last log, and that under way; 0 stands for no step.
_rlship_reach() { # log, barrier or rollback
  [ -n "$_rlship_reached" ] || return 0
  _rlship_what='' _rlship_next=$((_rlship_reached + 1))
  case $1 in
  log)
    if [ "$_rlship_promised" = "$_rlship_next" ] && [ "$_rlship_under" = "$((_rlship_next + 1))" ] &&
      [ "$_rlship_logged" -le "$_rlship_next" ]; then
      _rlship_what="log(…, step=$_rlship_reached) comes right after barrier($_rlship_reached): nothing is lost, but a row of a step may appear without it and be revised later. Call barrier once nothing more of its step will come"
    fi
    [ "$_rlship_under" -ge "$_rlship_next" ] || _rlship_under=$_rlship_next
    _rlship_logged=$_rlship_next
    ;;
  barrier)
    if [ "$_rlship_next" -lt "$_rlship_promised" ]; then
      _rlship_what="barrier($_rlship_reached) goes back behind barrier($((_rlship_promised - 1))): call rollback($_rlship_reached) first if the job resumed from an older checkpoint"
    fi
    [ "$_rlship_promised" -ge "$_rlship_next" ] || _rlship_promised=$_rlship_next
    _rlship_under=$((_rlship_next + 1))
    ;;
  rollback)
    [ "$_rlship_under" -ge "$_rlship_logged" ] || _rlship_under=$_rlship_logged
    # The checkpoint of step n may be the one from which step n + 1 begins.
    if [ "$_rlship_under" -gt 0 ] && [ "$_rlship_under" -lt "$_rlship_reached" ]; then
      _rlship_what="rollback($_rlship_reached) goes forward: the step of this process is $((_rlship_under - 1)). It is carried out. A rollback names the step of the checkpoint that the job went back to"
    fi
    _rlship_promised=$_rlship_reached _rlship_under=$_rlship_next
    ;;
  esac
  [ -z "$_rlship_what" ] || _rlship_tell "steps-$1" "$1" "$_rlship_what"
}

# Append one line unless it is too long.
_rlship_line() { # where line step
  if [ "${#2}" -gt 262000 ] && [ "$(printf '%s' "$2" | wc -c)" -gt 1048575 ]; then
    _rlship_tell long "$1" "a line does not fit in 1 MiB; it is left out"
    _rlship_lose "$3"
    return 0
  fi
  _rlship_put "$2$_rlship_nl" "$3"
}

# --- records ---

_rlship_log() { # "log" or "weighted", WEIGHT, STEP [WEIGHT of STEP] [NAME VALUE]...
  _rlship_weight= _rlship_at=${3-}
  _rlship_stepped log "$_rlship_at" || return 0
  if [ "$1" = weighted ]; then
    if _rlship_weighs "$2"; then
      _rlship_weight=$_rlship_json
      if [ "$#" -ge 5 ]; then shift 5; else shift "$#"; fi
    else
      set -- # the values are left out, but the step was reached
    fi
  elif [ "$#" -ge 3 ]; then
    shift 3
  else
    set --
  fi
  _rlship_time
  _rlship_m=
  while [ "$#" -ge 2 ]; do
    if _rlship_name log "$1"; then
      _rlship_key=$_rlship_json
      if _rlship_number "$2"; then
        case ,$_rlship_m in
        *,"$_rlship_key":*) # an object has no name twice
          _rlship_put "{$_rlship_step$_rlship_t,\"m\":{$_rlship_m}}$_rlship_nl" "$_rlship_at"
          _rlship_m=
          ;;
        esac
        [ -z "$_rlship_weight" ] || _rlship_json="{\"v\":[$_rlship_json],\"w\":[$_rlship_weight]}"
        _rlship_m=$_rlship_m${_rlship_m:+,}$_rlship_key:$_rlship_json
      else
        _rlship_tell value log "'$2' is no number; the value is left out"
      fi
    fi
    if [ "${#_rlship_m}" -gt 200000 ]; then
      _rlship_put "{$_rlship_step$_rlship_t,\"m\":{$_rlship_m}}$_rlship_nl" "$_rlship_at"
      _rlship_time
      _rlship_m=
      [ "$#" -gt 2 ] || return 0
    fi
    shift 2
  done
  _rlship_put "{$_rlship_step$_rlship_t,\"m\":{$_rlship_m}}$_rlship_nl" "$_rlship_at"
}

# A weight as JSON in _rlship_json; status 1, and reported, where it is not a weight.
_rlship_weighs() {
  if _rlship_number "$1"; then case $_rlship_json in -* | \"*) ;; *) return 0 ;; esac; fi
  _rlship_tell weight log "weight '$1' is negative or not finite; its values are left out"
  return 1
}

_rlship_list() { # STEP NAME VALUES WEIGHTS
  _rlship_stepped log "$1" || return 0
  _rlship_name log "$2" || return 0
  _rlship_key=$_rlship_json
  _rlship_lists=$(printf '%s\n%s\n' "$3" "$4" | LC_ALL=C awk '
    function number(x) {
      if (x == "NaN" || x == "Infinity" || x == "-Infinity") return "\"" x "\""
      if (x !~ /^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$/) fail()
      y = x + 0
      if (y > 1.7976931348623157e308 || y < -1.7976931348623157e308) fail()
      return x
    }
    function fail() { failed = 1; exit 1 }
    NR == 1 { n = split($0, v, ",") }
    NR == 2 { weighted = split($0, w, ",") }
    END {
      if (failed || n > 262144 || (weighted && weighted != n)) exit 1
      for (from = 1; from <= n || from == 1; from += 16384) {
        to = from + 16383 < n ? from + 16383 : n
        if (from > 1) printf "\n"
        printf weighted ? "{\"v\":[" : "["
        for (i = from; i <= to; i++) printf "%s%s", (i > from ? "," : ""), number(v[i])
        if (weighted) printf "],\"w\":["
        for (i = from; weighted && i <= to; i++) {
          if (w[i] !~ /^[0-9]/) fail()
          printf "%s%s", (i > from ? "," : ""), number(w[i])
        }
        printf weighted ? "]}" : "]"
      }
    }') || {
    _rlship_tell list log "a list of $2 has something that is no number, or too much; it is left out"
    _rlship_time
    _rlship_put "{$_rlship_step$_rlship_t,\"m\":{}}$_rlship_nl" "$1"
    return 0
  }
  # Not by patterns: shells take a time that grows with the square of such a text.
  while IFS= read -r _rlship_list; do
    _rlship_time
    _rlship_line log "{$_rlship_step$_rlship_t,\"m\":{$_rlship_key:$_rlship_list}}" "$1"
  done <<EOF
$_rlship_lists
EOF
}

_rlship_define() {
  _rlship_name define "${1-}" || return 0
  _rlship_key=$_rlship_json _rlship_m=
  shift
  for _rlship_word; do
    case $_rlship_word in
    reduce=?*)
      _rlship_string "${_rlship_word#*=}"
      _rlship_part=$_rlship_json
      case $_rlship_json in
      *,*)
        _rlship_part=
        _rlship_rest=$_rlship_json
        while :; do
          case $_rlship_rest in *,*) ;; *) break ;; esac
          _rlship_part="$_rlship_part${_rlship_rest%%,*}\",\""
          _rlship_rest=${_rlship_rest#*,}
        done
        _rlship_part="[$_rlship_part$_rlship_rest]"
        ;;
      esac
      _rlship_m="$_rlship_m${_rlship_m:+,}\"reduce\":$_rlship_part"
      ;;
    unit=?*)
      _rlship_string "${_rlship_word#*=}"
      _rlship_m="$_rlship_m${_rlship_m:+,}\"unit\":$_rlship_json"
      ;;
    per_rank=1 | stream=1) _rlship_m="$_rlship_m${_rlship_m:+,}\"${_rlship_word%=1}\":true" ;;
    *=) ;;
    *) _rlship_tell define define "'$_rlship_word' is not reduce=, unit=, per_rank=1 or stream=1; it is left out" ;;
    esac
  done
  _rlship_line="{\"kind\":\"define\",\"m\":{$_rlship_key:{$_rlship_m}}}"
  _rlship_line define "$_rlship_line" ''
  # For files and torn lines to come.
  [ "$((${#_rlship_defined} + ${#_rlship_line}))" -gt 131072 ] || _rlship_defined=$_rlship_defined$_rlship_line$_rlship_nl
}

_rlship_span() { # STEP NAME SECONDS ERROR
  _rlship_stepped span "$1" || return 0
  if ! _rlship_number "$3"; then _rlship_json=-; fi
  case $_rlship_json in
  -* | \"*)
    _rlship_tell seconds span "'$3' is no number of seconds; the call is left out"
    return 0
    ;;
  esac
  _rlship_key=$_rlship_json
  _rlship_now
  case $_rlship_key in
  *e* | ??????????*) ;; # too short, or too long: it began now
  *)
    _rlship_fraction=000
    case $_rlship_key in *.*) _rlship_fraction=${_rlship_key#*.}000 ;; esac
    _rlship_fraction=${_rlship_fraction%"${_rlship_fraction#???}"}
    _rlship_ms=$((_rlship_ms - ${_rlship_key%%.*} * 1000 - 1$_rlship_fraction + 1000))
    ;;
  esac
  _rlship_seconds "$_rlship_ms"
  _rlship_line="{\"kind\":\"span\",$_rlship_step\"t\":$_rlship_s,\"dur\":$_rlship_key"
  _rlship_string "${2:-unnamed}"
  if [ "$_rlship_length" -gt 500 ]; then
    _rlship_tell name span "a name has $_rlship_length characters, 500 are allowed; the span is left out"
    return 0
  fi
  _rlship_line="$_rlship_line,\"name\":$_rlship_json,\"lane\":\"main\""
  if [ -n "$4" ]; then
    _rlship_string "$4"
    _rlship_line="$_rlship_line,\"err\":$_rlship_json"
  fi
  _rlship_line span "$_rlship_line}" "$1"
}

# KEY=TEXT and KEY:=JSON as the members of an object in _rlship_m.
_rlship_members() { # where [KEY=TEXT | KEY:=JSON]...
  _rlship_m= _rlship_names=, _rlship_where=$1
  shift
  for _rlship_word; do
    _rlship_key=${_rlship_word%%=*} _rlship_rest=${_rlship_word#*=}
    case $_rlship_word in
    *=*) ;;
    *)
      _rlship_tell member "$_rlship_where" "'$_rlship_word' is not KEY=TEXT or KEY:=JSON; it is left out"
      continue
      ;;
    esac
    _rlship_name "$_rlship_where" "${_rlship_key%:}" || continue
    case $_rlship_names in
    *",$_rlship_json,"*)
      _rlship_tell twice "$_rlship_where" "'${_rlship_key%:}' is given twice; the first counts"
      continue
      ;;
    esac
    _rlship_names=$_rlship_names$_rlship_json,
    _rlship_m="$_rlship_m${_rlship_m:+,}$_rlship_json:"
    case $_rlship_key in
    *:)
      case $_rlship_rest in
      true | false | null | \"*\" | \[*\] | \{*\})
        _rlship_json=$_rlship_rest
        case $_rlship_rest in *"$_rlship_nl"*) _rlship_json=$(printf '%s' "$_rlship_rest" | tr '\n' ' ') ;; esac
        ;;
      *) _rlship_number "$_rlship_rest" || _rlship_string "$_rlship_rest" ;;
      esac
      ;;
    *) _rlship_string "$_rlship_rest" ;;
    esac
    _rlship_m=$_rlship_m$_rlship_json
  done
}

_rlship_event() {
  _rlship_stepped event "${1-}" || return 0
  _rlship_name event "${2-}" || return 0
  _rlship_at=$1 _rlship_line="$_rlship_step" _rlship_title=$_rlship_json
  shift 2
  _rlship_members event "$@"
  _rlship_time
  _rlship_line event "{\"kind\":\"event\",$_rlship_line$_rlship_t,\"name\":$_rlship_title,\"attrs\":{$_rlship_m}}" "$_rlship_at"
}

_rlship_sample() {
  _rlship_stepped sample "${1-}" || return 0
  _rlship_name sample "${2-}" || return 0
  _rlship_at=$1 _rlship_line="$_rlship_step" _rlship_title=$_rlship_json
  if [ -n "${3-}" ] && _rlship_number "$3"; then _rlship_line="$_rlship_line\"score\":$_rlship_json,"; fi
  if [ "$#" -ge 3 ]; then shift 3; else shift 2; fi
  _rlship_members sample "$@"
  _rlship_pri=$(od -An -v -N6 -tu2 /dev/urandom | LC_ALL=C awk '{ printf "%.15f", (($1 * 65536 + $2) * 65536 + $3) / 281474976710656 }')
  _rlship_time
  _rlship_line sample "{\"kind\":\"sample\",$_rlship_line$_rlship_t,\"table\":$_rlship_title,\"pri\":$_rlship_pri,\"row\":{$_rlship_m}}" "$_rlship_at"
}

# --- the run ---

# A `run` record of KEY=TEXT and KEY:=JSON, without secrets; without an object they are the record's own members.
_rlship_note() { # config|summary|'' [KEY=TEXT | KEY:=JSON]...
  _rlship_object=$1 _rlship_dropped= _rlship_room=0
  shift
  _rlship_count=$#
  while [ "$_rlship_count" -gt 0 ]; do
    _rlship_word=$1 _rlship_count=$((_rlship_count - 1))
    shift
    if _rlship_is_usable "$_rlship_word"; then
      set -- "$@" "$_rlship_word"
      _rlship_room=$((_rlship_room + ${#_rlship_word}))
    fi
  done
  if [ "$_rlship_room" -gt 120000 ] && [ "$#" -gt 1 ]; then # perhaps more than a line holds
    _rlship_paths=$_rlship_dropped
    for _rlship_each; do _rlship_note "$_rlship_object" "$_rlship_each"; done
    _rlship_dropped=$_rlship_paths
    set --
  fi
  _rlship_members "${_rlship_object:-run}" "$@"
  _rlship_said=$_rlship_m
  [ -z "$_rlship_m" ] || [ -z "$_rlship_object" ] || _rlship_m="\"$_rlship_object\":{$_rlship_m}"
  [ -z "$_rlship_dropped" ] || _rlship_m="$_rlship_m${_rlship_m:+,}\"dropped\":[$_rlship_dropped]"
  [ -n "$_rlship_m" ] || return 0
  _rlship_time
  _rlship_part=$_rlship_object$_rlship_names
  case $_rlship_said in *'{'* | '') _rlship_part=- ;; esac
  _rlship_keep "$_rlship_part" "{\"kind\":\"run\",$_rlship_t,$_rlship_m}"
}

# Append a `run` record, and keep it for files and torn lines to come. Of those with the same names the last is enough.
_rlship_keep() { # names line
  _rlship_line run "$2" ''
  _rlship_ran=$_rlship_ran$1$_rlship_tab$2$_rlship_nl
  [ "${#_rlship_ran}" -gt 131072 ] || return 0
  _rlship_ran=$(printf '%s' "$_rlship_ran" | LC_ALL=C awk -F '\t' '
    { names[NR] = $1; line[NR] = $0; last[$1] = NR }
    END { for (i = 1; i <= NR; i++) if (names[i] == "-" || last[names[i]] == i) print line[i] }')$_rlship_nl
  while [ "${#_rlship_ran}" -gt 131072 ]; do
    _rlship_tell kept run 'more than 128 KiB of run data: a file that is lost takes some with it'
    _rlship_ran=$(printf '%s' "$_rlship_ran" | tail -n +2)$_rlship_nl
  done
}

# All that is kept, as lines, in _rlship_repeated.
_rlship_again() {
  _rlship_repeated=
  [ -z "$_rlship_ran" ] || _rlship_repeated=$(printf '%s' "$_rlship_ran" | cut -f 2-)$_rlship_nl
}

# Whether KEY=TEXT or KEY:=JSON can be said of a run. The path of a secret is added to _rlship_dropped.
_rlship_is_usable() { # KEY=TEXT or KEY:=JSON
  case $1 in
  *=*) ;;
  *) return 0 ;; # _rlship_members tells it
  esac
  _rlship_key=${1%%=*} _rlship_rest=${1#*=}
  if [ -z "$_rlship_object" ]; then
    case $_rlship_key=$_rlship_rest in
    name=* | notes=* | group=* | project=* | entity=* | job_type=*) ;;
    tags:=\[*\] | dropped:=\[*\] | config:=\{*\} | summary:=\{*\} | facts:=\{*\}) ;;
    exit_code:=[0-9] | exit_code:=-[1-9] | exit_code:=[1-9][0-9] | exit_code:=-[1-9][0-9]) ;;
    exit_code:=[12][0-9][0-9] | exit_code:=-[12][0-9][0-9])
      _rlship_part=${_rlship_rest#-}
      [ "$_rlship_part" -le 255 ] || return 1
      ;;
    *)
      _rlship_tell member run "'$_rlship_key' is no member of a run, or not of this type; it is left out"
      return 1
      ;;
    esac
  fi
  case $_rlship_key in
  *[Pp][Aa][Ss][Ss]* | *[Ss][Ee][Cc][Rr][Ee][Tt]* | *[Cc][Rr][Ee][Dd][Ee][Nn]* | *[Kk][Ee][Yy]*) ;;
  *[Tt][Oo][Kk][Ee][Nn]* | *[Aa][Uu][Tt][Hh][Oo][Rr]* | *[Bb][Ee][Aa][Rr][Ee][Rr]*) ;;
  *[Pp][Ww][Dd]* | *[Pp][Aa][Tt] | *[Pp][Aa][Tt][!Hh]*) ;;
  *)
    case $_rlship_key=$_rlship_rest in
    *:=*\"* | *hf_* | *sk-* | *gh[pousr]_* | *github_pat_* | *glpat-* | *nvapi-* | *xox[bp]-* | *gsk_*) ;;
    *A[KS]IA* | *AIza* | *eyJ* | *://*@* | *=*=* | *pypi-AgE* | *npm_* | *wandb_v1_* | *dckr_pat_* | *[rs]k_live_*) ;;
    *hooks.slack.com/* | *"PRIVATE KEY-----"* | *[Bb][Ee][Aa][Rr][Ee][Rr]*) ;;
    *) return 0 ;;
    esac
    ;;
  esac
  _rlship_string "${_rlship_object:+$_rlship_object.}${_rlship_key%:}"
  if ! _rlship_clean=$(_rlship_is_secret "$_rlship_key" "$_rlship_rest" "$_rlship_json"); then return 0; fi
  if [ -n "$_rlship_clean" ]; then
    _rlship_word=$_rlship_key=${_rlship_clean%%"$_rlship_nl"*}
    _rlship_dropped=$_rlship_dropped${_rlship_dropped:+,}${_rlship_clean#*"$_rlship_nl"}
    return 0
  fi
  _rlship_dropped=$_rlship_dropped${_rlship_dropped:+,}$_rlship_json
  return 1
}

# Status 0 where a text, or one in a JSON value (its key ends in a colon), is a secret. Of a JSON value prints what is
# left without its secrets, and their paths, which begin with PATH; nothing where all of it has to go.
_rlship_is_secret() { # KEY value PATH
  case $1:$2 in *::true | *::false | *::null | *::[0-9.-]*) return 1 ;; esac
  printf '%s' "$2" | _rlship_named=$1 _rlship_where=$3 LC_ALL=C awk '
    function blank(c) { return c == " " || c == "\t" || c == "\n" || c == "\r" || c == "\f" || c == "\v" }
    function between(c) { return c == "" || blank(c) || index("\"\047`,;:=()[]{}<>|&?", c) }
    # 1: texts below this name are secrets, 2: they may be tokens.
    function hint(name,   i, c, n, word, last, upper, before, letter) {
      n = length(name)
      for (i = 1; i <= n + 1; i++) {
        c = substr(name, i, 1)
        upper = c ~ /[A-Z]/
        letter = c != "" && !blank(c) && !index("!\"#$%&\047()*+,-./:;<=>?@[\\]^_`{|}~", c)
        if (word != "" && (!letter || (upper && (!before || substr(name, i + 1, 1) ~ /[a-z]/)))) {
          if (index(secret, " " word " ") || word ~ /(password|passwd|passphrase|secret|secretkey|apikey)$/) return 1
          if (index(" key keys ", " " word " ") && index(before_key, " " last " ")) return 1
          if (index(" pass pwd ", " " word " ") && index(accounts, " " last " ")) return 1
          if (word == "pat" && index(" github gh gitlab git azure ado devops ", " " last " ")) return 1
          if (word == "word" && last == "pass") return 1
          last = word
          word = ""
        }
        if (letter) word = word tolower(c)
        before = upper
      }
      return last == "token" ? 2 : 0
    }
    function is_token(s) {
      if (length(s) < 16 || s ~ /[ \t\n\r]/) return 0
      return !(s ~ /^<.*>$/ || s ~ /^\[.*\]$/)
    }
    function prefix(s, most,   i) {
      for (i = 1; i <= most; i++) if (index(s, prefixes[i]) == 1) return length(prefixes[i])
      return 0
    }
    function has_secret(s,   i, c, n, word, name, rest, value, before, named) {
      if (prefix(s, 16) && s !~ /[ \t\n\r]/) return 1
      if (index(s, "hooks.slack.com/services/") || (index(s, "-----BEGIN") && index(s, "PRIVATE KEY-----"))) return 1
      named = index(tolower(s), "authorization")
      n = length(s)
      for (i = 1; i <= n + 1; i++) {
        c = substr(s, i, 1)
        if (!between(c)) { word = word c; continue }
        if (prefix(word, many) && length(word) - prefix(word, many) >= 16 && word !~ /[^A-Za-z0-9_.-]/) {
          if (index(word, "npm_") != 1 || substr(word, 5) !~ /[_.-]/) return 1
        }
        if (word != "") {
          if (before == "bearer" && (named || length(word) >= 16)) return 1
          before = tolower(word)
        }
        if (c == "=" && word != "") {
          rest = substr(s, i + 1, 2000)
          sub(/^["\047]+/, "", rest)
          for (value = ""; !between(substr(rest, length(value) + 1, 1)); ) value = value substr(rest, length(value) + 1, 1)
          name = hint(word)
          if (value != "" && (name == 1 || (name == 2 && is_token(value)))) return 1
        }
        word = ""
        if (c == ":" && substr(s, i, 3) == "://") {
          rest = substr(s, i + 3, 2000)
          sub(/\/.*$/, "", rest)
          if (rest ~ /^[^ \t\n\r:]*:[^ \t\n\r]+@[^@]*$/) return 1
          if (substr(s, 1, i - 1) ~ /https?$/ && sub(/@[^@]*$/, "", rest) && length(rest) >= 16 && rest !~ /[ \t\n\r]/) return 1
        }
      }
      return 0
    }
    function is_secret(known, s) {
      if (known == 1) return s !~ /^[ \t\n\r]*$/
      return (known == 2 && is_token(s)) || has_secret(s)
    }
    function json_secret(known, s,   i, c, n, depth, text, hints) {
      n = length(s)
      hints[0] = known
      for (i = 1; i <= n; i++) {
        c = substr(s, i, 1)
        if (c == "{" || c == "[") { hints[depth + 1] = hints[depth + 0]; depth++ }
        else if ((c == "}" || c == "]") && depth) depth--
        else if (c == "\"") {
          text = ""
          while (++i <= n && (c = substr(s, i, 1)) != "\"") {
            if (c == "\\") c = substr(s, ++i, 1)
            text = text c
          }
          for (c = i + 1; blank(substr(s, c, 1)); ) c++
          if (substr(s, c, 1) == ":") hints[depth + 0] = (depth && hints[depth - 1] == 1) ? 1 : hint(text)
          else if (is_secret(hints[depth + 0], text)) return 1
        }
      }
      return 0
    }
    function skip() { while (blank(substr(all, at, 1))) at++ }
    # The text of the string that begins here; afterwards `at` is behind it.
    function quoted(   c, text) {
      while (++at <= size && (c = substr(all, at, 1)) != "\"") {
        if (c == "\\") c = substr(all, ++at, 1)
        text = text c
      }
      at++
      return text
    }
    # The value that begins here without its secrets; "" where it is one, or where `bad` says that it is no JSON.
    function without(known, path, depth,   c, from, n, kept, inner, name, got, out) {
      skip()
      from = at
      c = substr(all, at, 1)
      if (c == "\"") {
        if (!is_secret(known, quoted())) return substr(all, from, at - from)
        dropped = dropped (dropped == "" ? "" : ",") "\"" path "\""
        return ""
      }
      if (c != "{" && c != "[") {
        while (at <= size && (c = substr(all, at, 1)) !~ /[],}]/ && !blank(c)) at++
        bad = bad || at == from
        return substr(all, from, at - from)
      }
      if (depth > 64) bad = 1
      out = c
      at++
      for (n = 0; !bad; n++) {
        skip()
        if (substr(all, at, 1) == (substr(out, 1, 1) == "{" ? "}" : "]")) return out substr(all, at++, 1)
        if (n && substr(all, at++, 1) != ",") bad = 1
        inner = known
        name = n
        if (substr(out, 1, 1) == "{") {
          skip()
          from = at
          if (substr(all, at, 1) != "\"") bad = 1
          got = hint(quoted())
          if (known != 1) inner = got
          name = substr(all, from + 1, at - from - 2)
          skip()
          if (substr(all, at++, 1) != ":") bad = 1
        }
        got = without(inner, path "." name, depth + 1)
        if (substr(out, 1, 1) == "{") { if (got != "") out = out (kept++ ? "," : "") "\"" name "\":" got }
        else out = out (kept++ ? "," : "") (got == "" ? "\"***\"" : got)
      }
      return ""
    }
    BEGIN {
      secret = " password passwords passwd passphrase secret secrets credential credentials apikey apikeys accesskey privatekey authorization bearer "
      before_key = " api access private auth signing encryption ssh gpg pgp rsa tls ssl master deploy openai gemini google mistral cohere groq deepseek openrouter replicate wandb hf huggingface comet neptune github gitlab aws azure gcp stripe tavily serper pinecone langsmith "
      accounts = " db database sql mysql pg postgres mongo redis amqp rabbitmq smtp mail email ftp ssh http https proxy admin root user login auth ldap sudo "
      many = split("hf_ sk- ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- nvapi- xoxb- xoxp- wandb_v1_ dckr_pat_ sk_live_ rk_live_ gsk_ AKIA ASIA AIza eyJ pypi-AgE npm_", prefixes, " ")
      key = ENVIRON["_rlship_named"]
    }
    { all = all (NR > 1 ? "\n" : "") $0 }
    END {
      is_json = sub(/:$/, "", key) && all ~ /^[\[{"]/
      if (!(is_json ? json_secret(hint(key), all) : is_secret(hint(key), all))) exit 1
      if (is_json) {
        size = length(all)
        at = 1
        path = ENVIRON["_rlship_where"]
        left = without(hint(key), substr(path, 2, length(path) - 2), 0)
        if (!bad && left != "") printf "%s\n%s\n", left, dropped
      }
      exit 0
    }'
}

_rlship_mark() { # kind step
  _rlship_stepped "$1" "$2" || return 0
  _rlship_time
  _rlship_put "{\"kind\":\"$1\",$_rlship_step$_rlship_t}$_rlship_nl" "$2"
}

# --- the ledger ---

_rlship_ledger() { # STEP HOP KEY [NAME=VALUE]...
  _rlship_stepped ledger "${1-}" || return 0
  _rlship_name ledger "${2-}" || return 0
  _rlship_at=$1 _rlship_line="$_rlship_step" _rlship_title=$_rlship_json _rlship_key=${3-} _rlship_m=
  if [ "$#" -ge 3 ]; then shift 3; else shift "$#"; fi
  _rlship_string "$_rlship_key"
  if [ "$_rlship_length" -lt 1 ] || [ "$_rlship_length" -gt 200 ]; then
    _rlship_tell ledger ledger "a key has $_rlship_length characters, 1 to 200 are allowed; the call is left out"
    return 0
  fi
  _rlship_title="$_rlship_title,\"key\":$_rlship_json"
  for _rlship_word; do
    case $_rlship_word in
    why=?*)
      _rlship_begin ledger "${_rlship_word#why=}"
      _rlship_m=",\"why\":$_rlship_json"
      ;;
    esac
  done
  _rlship_status=0
  _rlship_part=$(_rlship_group "$@" | _rlship_digest "${RLSHIP_LEDGER_SHARE:-0.125}" 2>/dev/null) || _rlship_status=$?
  case $_rlship_status in
  0) ;;
  2) return 0 ;; # the share of keys does not have this one
  *)
    _rlship_tell ledger ledger "${_rlship_part:-awk cannot make a digest}; the call is left out"
    return 0
    ;;
  esac
  case $_rlship_part in
  *"$_rlship_nl"*) # a share that cannot be used
    _rlship_tell share ledger "${_rlship_part%%"$_rlship_nl"*}"
    _rlship_part=${_rlship_part#*"$_rlship_nl"}
    ;;
  esac
  _rlship_time
  _rlship_line ledger "{\"kind\":\"ledger\",$_rlship_line$_rlship_t,\"hop\":$_rlship_title,$_rlship_part$_rlship_m}" "$_rlship_at"
}

_rlship_weights() { # STEP VERSION FINGERPRINT
  _rlship_stepped weights "$1" || return 0
  _rlship_line="$_rlship_step"
  if ! _rlship_digits "$2" || [ "${#2}" -gt 16 ] || [ "$2" -gt 9007199254740991 ] || [ "$2" != "${2#0?}" ]; then
    _rlship_tell weights weights "version '$2' is not an integer in 0..2^53-1; the call is left out"
    return 0
  fi
  _rlship_m=
  if [ -n "$3" ]; then
    _rlship_begin weights "$3"
    _rlship_m=",\"fingerprint\":$_rlship_json"
  fi
  _rlship_time
  _rlship_line weights "{\"kind\":\"ledger\",$_rlship_line$_rlship_t,\"hop\":\"weights\",\"key\":\"$2\",\"n\":0,\"version\":[$2,$2]$_rlship_m}" "$1"
}

# At most 200 characters of a text, in _rlship_json.
_rlship_begin() { # where text
  _rlship_string "$2"
  [ "$_rlship_length" -gt 200 ] || return 0
  _rlship_tell begin "$1" "a text has $_rlship_length characters, of which the first 200 bytes are kept"
  _rlship_string "$(printf '%s' "$2" | tr '\n' ' ' | LC_ALL=C cut -b 1-200)"
}

# The group in _rlship_key for _rlship_digest: `=NAME` before each value. Values stand behind a colon, texts as their bytes.
# The last line says how many there are, so that a line break in a value makes no further one.
_rlship_group() { # [NAME=VALUE]...
  _rlship_count=1
  printf '=key\n'
  printf '%s' "$_rlship_key" | LC_ALL=C od -An -v -tu1
  for _rlship_word; do
    case $_rlship_word in
    *= | why=*) ;; # not given
    sample=*)
      _rlship_count=$((_rlship_count + 1))
      printf '=sample\n'
      printf '%s' "${_rlship_word#sample=}" | LC_ALL=C od -An -v -tu1
      ;;
    *=*)
      _rlship_count=$((_rlship_count + 1))
      printf '=%s\n:%s\n' "${_rlship_word%%=*}" "${_rlship_word#*=}"
      ;;
    *) printf '?%s\n' "$_rlship_word" ;;
    esac
  done
  printf '#%s\n' "$_rlship_count"
}

# The members of a `ledger` record from `n` on. Status 1 with what is wrong; 2 where the share of keys does not have this one.
# awk counts in doubles: integers of 64 bits are two halves, and what it cannot compute bit by bit is looked up.
_rlship_digest() { # share
  LC_ALL=C awk -v share="$1" '
    function fail(why) { if (wrong == "") wrong = why }

    # Exclusive or of bytes, and of integers of 32 bits.
    function exor(a, b,   k) {
      k = a * 256 + b
      if (!(k in XOR)) XOR[k] = HALF[int(a / 16) * 16 + int(b / 16)] * 16 + HALF[(a % 16) * 16 + b % 16]
      return XOR[k]
    }
    function exor32(a, b) {
      return ((exor(int(a / 16777216), int(b / 16777216)) * 256 + exor(int(a / 65536) % 256, int(b / 65536) % 256)) * 256 \
        + exor(int(a / 256) % 256, int(b / 256) % 256)) * 256 + exor(a % 256, b % 256)
    }

    # The register of a CRC-32 is c0 to c3, the lowest byte first.
    function begin() { c0 = c1 = c2 = c3 = 255 }
    function feed(byte,   i) {
      i = exor(c0, byte)
      c0 = exor(c1, T0[i]); c1 = exor(c2, T1[i]); c2 = exor(c3, T2[i]); c3 = T3[i]
    }
    function feed32(x) { feed(x % 256); feed(int(x / 256) % 256); feed(int(x / 65536) % 256); feed(int(x / 16777216)) }
    function crc() { return (((255 - c3) * 256 + 255 - c2) * 256 + 255 - c1) * 256 + 255 - c0 }

    # mix64 of a * 2^32 + b: the upper half in high, the lower one in low.
    function times(m3, m2, m1, m0,   x0, x1, x2, x3, t) {
      x0 = low % 65536; x1 = int(low / 65536); x2 = high % 65536; x3 = int(high / 65536)
      t = x0 * m0; low = t % 65536; t = int(t / 65536) + x1 * m0 + x0 * m1
      low += t % 65536 * 65536; t = int(t / 65536) + x2 * m0 + x1 * m1 + x0 * m2
      high = t % 65536; t = int(t / 65536) + x3 * m0 + x2 * m1 + x1 * m2 + x0 * m3
      high += t % 65536 * 65536
    }
    function shifted(down, up) { # x ^ x >> k, with 2^k and 2^(32-k): some awk have no powers
      low = exor32(low, (high % down) * up + int(low / down))
      high = exor32(high, int(high / down))
    }
    function mix(a, b) {
      low = b + 2135587861; high = a + 2654435769
      if (low >= 4294967296) { low -= 4294967296; high++ }
      high %= 4294967296
      shifted(1073741824, 4); times(48984, 18285, 7396, 58809)
      shifted(134217728, 32); times(38096, 18875, 4913, 4587)
      shifted(2147483648, 2)
    }

    # The bits of a number as float32, or as bfloat16.
    function bits(text,   x, e, k, m, found, sign) {
      if (text ~ /^[+-]?[Nn][Aa][Nn]$/) return bf16 ? 32704 : 2143289344
      sign = text ~ /^-/
      if (text ~ /^[+-]?[Ii][Nn][Ff]/) found = 2139095040
      else {
        x = text + 0; if (x < 0) x = -x
        if (x < 7.006492321624085e-46) found = 0 # half of the least
        else if (x >= 3.4028236692093846e38) found = 2139095040
        else {
          e = 0; m = x
          while (m >= 2) { m /= 2; e++ }
          while (m < 1) { m *= 2; e-- }
          for (k = e < -126 ? 149 + e : 23; k > 0; k--) m *= 2
          if (k < 0) m /= 2
          found = int(m); m -= found
          if (m > 0.5 || (m == 0.5 && found % 2)) found++
          if (e >= -126) found += (e + 126) * 8388608
          if (found > 2139095040) found = 2139095040
        }
      }
      if (bf16) {
        m = found % 65536; found = int(found / 65536)
        if (m > 32768 || (m == 32768 && found % 2)) found++
      }
      return found == 0 ? 0 : found + sign * (bf16 ? 32768 : 2147483648)
    }
    function is_number(x) {
      if (x ~ /^[+-]?([Nn][Aa][Nn]|[Ii][Nn][Ff]([Ii][Nn][Ii][Tt][Yy])?)$/) return 1
      return x ~ /^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$/ && x + 0 <= 1.7976931348623157e308 && x + 0 >= -1.7976931348623157e308
    }

    # An integer as two halves, the upper one in high. A negative one is its complement.
    function halves(text,   i, minus) {
      if (text !~ /^-?[0-9]+$/ || length(text) > 20) { fail("tokens holds \"" substr(text, 1, 40) "\", which is no integer of 64 bits"); text = "0" }
      minus = text ~ /^-/; high = low = 0
      for (i = 1 + minus; i <= length(text); i++) {
        low = low * 10 + substr(text, i, 1)
        high = high * 10 + int(low / 4294967296); low %= 4294967296
      }
      if (high > 2147483648 || (high == 2147483648 && (low || !minus))) fail("tokens holds an integer that does not fit in 64 bits")
      if (minus && (high || low)) {
        low = 4294967296 - low; high = 4294967295 - high
        if (low == 4294967296) { low = 0; high++ }
        high %= 4294967296
      }
    }

    # How many samples a value has; it has to be as many as others have.
    function counted(name, count) {
      if (n == "") n = count
      else if (n != count) fail(name " has values of " count " samples, and n is " n)
      if (count > 2097152) fail("a group has " count " samples, 2097152 are allowed")
      return count
    }
    function rows_of(name, text, separator,   count) {
      count = split(text, row, separator)
      return counted(name, count)
    }
    function note(name, i) { # the CRC of a value whose bytes were fed, followed by the name
      for (k = 1; k <= length(name); k++) feed(index(ASCII, substr(name, k, 1)) + 31)
      value[name, i] = crc()
    }

    function tokens_of(text,   count, i, j, many, wide, item, upper) {
      count = rows_of("tokens", text, ";")
      for (i = 1; i <= count; i++) {
        many = split(row[i], item, ",")
        wide = 0
        for (j = 1; j <= many; j++) {
          halves(item[j])
          item[j] = low; upper[j] = high
          if (high != (low >= 2147483648 ? 4294967295 : 0)) wide = 1
        }
        begin()
        for (j = 1; j <= many; j++) { feed32(item[j]); if (wide) feed32(upper[j]) }
        token[i] = crc(); lengths[i] = many
        note("tokens", i)
      }
    }
    function mask_of(text,   count, i, j, many, item, own) {
      count = rows_of("mask", text, ";")
      for (i = 1; i <= count; i++) {
        many = split(row[i], item, ",")
        begin()
        own = 0
        for (j = 1; j <= many; j++) {
          if (!is_number(item[j])) fail("mask holds \"" substr(item[j], 1, 40) "\", which is no number")
          if (item[j] + 0) own++
          feed(item[j] + 0 ? 1 : 0)
        }
        if (!("tokens" in given)) lengths[i] = many
        counts += own; empty += !own
        note("mask", i)
      }
    }
    function numbers_of(name, text, separator,   count, i, j, many, item, x) {
      count = rows_of(name, text, separator)
      for (i = 1; i <= count; i++) {
        many = separator == "," ? 1 : split(row[i], item, ",")
        if (separator == ",") item[1] = row[i]
        begin()
        for (j = 1; j <= many; j++) {
          if (!is_number(item[j])) { fail(name " holds \"" substr(item[j], 1, 40) "\", which is no number"); continue }
          x = bits(item[j])
          feed(x % 256); feed(int(x / 256) % 256)
          if (!bf16) { feed(int(x / 65536) % 256); feed(int(x / 16777216)) }
        }
        figure[name, i] = row[i]
        note(name, i)
      }
    }
    # The bytes of names, with commas between them.
    function samples_of(text,   many, byte, count, i, k) {
      many = split(text, byte, " ")
      begin()
      count = 1
      for (i = 1; i <= many; i++) {
        if (byte[i] == 44) { sample[count++] = crc(); begin() } else feed(byte[i])
      }
      sample[count] = crc()
      counted("sample", count)
      for (i = 1; i <= count; i++) { # the value goes on from the register of the name
        x = sample[i]
        c0 = 255 - x % 256; c1 = 255 - int(x / 256) % 256; c2 = 255 - int(x / 65536) % 256; c3 = 255 - int(x / 16777216)
        note("sample", i)
      }
    }

    # A sum; what additions lose is in a second one.
    function add(x,   next_sum) {
      next_sum = total + x
      if ((total < 0 ? -total : total) >= (x < 0 ? -x : x)) lost += (total - next_sum) + x
      else lost += (x - next_sum) + total
      total = next_sum
    }
    function sum_of(name, other, mean,   i) { # of (name - mean) * other; of name alone where other is ""
      total = lost = 0
      for (i = 1; i <= n; i++) add(other == "" ? figure[name, i] + 0 : (figure[name, i] - mean) * figure[other, i])
      return total + lost
    }
    function is_finite(name,   i, x) {
      for (i = 1; i <= n; i++) {
        x = figure[name, i]
        if (x ~ /[Nn]/ || (x * x) > 1.7976931348623157e308) return 0
      }
      return name in given
    }
    function text_of(x) { return x == 0 ? "0.0" : sprintf("%.17g", x) }
    function whole(name, text, least) {
      if (text !~ /^(0|[1-9][0-9]*)$/ || length(text) > 16 || text + 0 > 9007199254740991 || text + 0 < least)
        fail(name " \"" substr(text, 1, 40) "\" is not an integer from " least " to 2^53-1")
      return text
    }
    function pair(name, text,   found, count) {
      count = split(text, found, ",")
      whole(name, found[1], 0); whole(name, found[count], 0)
      if (count > 2 || (name == "part" && (count != 2 || found[1] + 0 >= found[2] + 0))) fail(name " \"" substr(text, 1, 40) "\" cannot be used")
      if (found[1] + 0 > found[count] + 0) return found[count] "," found[1]
      return found[1] "," found[count]
    }

    BEGIN {
      for (a = 0; a < 16; a++) for (b = 0; b < 16; b++) {
        found = 0
        for (bit = 1; bit < 16; bit *= 2) if (int(a / bit) % 2 != int(b / bit) % 2) found += bit
        HALF[a * 16 + b] = found
      }
      T0[0] = T1[0] = T2[0] = T3[0] = 0
      register = 3988292384; T0[128] = 32; T1[128] = 131; T2[128] = 184; T3[128] = 237
      for (top = 64; top >= 1; top /= 2) {
        odd = register % 2; register = int(register / 2)
        if (odd) register = exor32(register, 3988292384)
        T0[top] = register % 256; T1[top] = int(register / 256) % 256
        T2[top] = int(register / 65536) % 256; T3[top] = int(register / 16777216)
      }
      for (top = 2; top <= 128; top *= 2) for (k = 1; k < top; k++) {
        T0[top + k] = exor(T0[top], T0[k]); T1[top + k] = exor(T1[top], T1[k])
        T2[top + k] = exor(T2[top], T2[k]); T3[top + k] = exor(T3[top], T3[k])
      }
      for (k = 32; k < 127; k++) ASCII = ASCII sprintf("%c", k)
    }

    /^=/ { name = substr($0, 2); if (name in given) fail(name " is given twice"); else order[++many] = name; given[name] = ""; next }
    /^:/ { if (given[name] == "") given[name] = substr($0, 2); next }
    /^ / { given[name] = given[name] $0; next }
    /^#/ { expected = substr($0, 2); next }
    { if ($0 != "") fail("\"" substr($0, 2, 40) "\" is not NAME=VALUE, or stands behind a line break") }

    END {
      split(given["key"], byte, " ")
      begin()
      for (k = 1; k in byte; k++) feed(byte[k])
      mix(0, crc())
      if (!is_number(share) || share ~ /[Nn]/ || share + 0 < 0 || share + 0 > 1) {
        print "RLSHIP_LEDGER_SHARE \"" substr(share, 1, 40) "\" is not a number from 0 to 1; an eighth of the groups is recorded"
        share = 0.125
      }
      if (high * 2097152 + int(low / 2048) >= share * 9007199254740992) exit 2

      if (expected + 0 != many) fail("a value has a line break")
      if ("n" in given) n = whole("n", given["n"], 0) + 0
      if ("precision" in given) { bf16 = 1; if (given["precision"] != "bf16") fail("precision \"" substr(given["precision"], 1, 40) "\" is not known: use bf16, or leave it out") }
      if ("sample" in given) samples_of(given["sample"])
      if ("tokens" in given) tokens_of(given["tokens"])
      fields = 0
      for (i = 1; i <= many; i++) {
        name = order[i]
        if (name ~ /^(key|n|precision|version|response|part|retry|passes)$/) continue
        if (++fields > 32) fail("there are more than 32 fields")
        if (name == "mask") mask_of(given[name])
        else if (name == "reward" || name == "advantage") numbers_of(name, given[name], ",")
        else if (name !~ /^[A-Za-z0-9_.\/-]+$/) fail("a field is named \"" substr(name, 1, 40) "\": letters, digits and _ . / - are allowed")
        else if (name != "tokens" && name != "sample") numbers_of(name, given[name], ";")
        field[fields] = name
      }
      if (n == "") fail("n= is needed where nothing has a value for each sample")
      out = "\"n\":" n
      by = "sample" in given ? "sample" : "tokens" in given ? "tokens" : ""
      if (by != "" && fields) out = out ",\"by\":\"" by "\""
      for (f = 1; f <= fields && wrong == ""; f++) {
        lows = highs = 0
        for (i = 1; i <= n; i++) {
          mix(by == "sample" ? sample[i] : by == "tokens" ? token[i] : 0, value[field[f], i])
          lows += low; highs += high
        }
        out = out (f > 1 ? "," : ",\"d\":{") "\"" field[f] "\":[" sprintf("%.0f", lows) "," sprintf("%.0f", highs) "]" (f == fields ? "}" : "")
      }
      if (bf16 && fields) out = out ",\"precision\":\"bf16\""
      if (wrong == "" && is_finite("reward")) {
        total_reward = sum_of("reward", "", 0)
        out = out ",\"reward\":[" text_of(total_reward) "," text_of(sum_of("reward", "reward", 0)) "]"
      }
      if (wrong == "" && is_finite("advantage")) {
        out = out ",\"advantage\":[" text_of(sum_of("advantage", "", 0)) "," text_of(sum_of("advantage", "advantage", 0))
        if (n > 0 && is_finite("reward")) out = out "," text_of(sum_of("reward", "advantage", total_reward / n))
        out = out "]"
      }
      if ("mask" in given) {
        all = 0
        for (i = 1; i <= n; i++) all += lengths[i]
        out = out ",\"mask\":[" (counts + 0) "," all "," (empty + 0) "]"
      }
      if ("version" in given) out = out ",\"version\":[" pair("version", given["version"]) "]"
      if ("response" in given) out = out ",\"response\":" whole("response", given["response"], 0)
      if ("part" in given) out = out ",\"part\":[" pair("part", given["part"]) "]"
      if ("retry" in given) out = out ",\"try\":" whole("retry", given["retry"], 0)
      if ("passes" in given) out = out ",\"passes\":" whole("passes", given["passes"], 1)
      if (wrong != "") { print wrong; exit 1 }
      print out
    }'
}

# --- who this is ---

# The first of these variables that is set and an integer in least..most, in _rlship_found; else status 1.
_rlship_variable() { # least most variable...
  _rlship_least=$1 _rlship_most=$2
  shift 2
  for _rlship_word; do
    eval "_rlship_found=\${$_rlship_word-}"
    [ -n "$_rlship_found" ] || continue
    if _rlship_digits "$_rlship_found" && [ "${#_rlship_found}" -le 16 ]; then
      while :; do case $_rlship_found in 0?*) _rlship_found=${_rlship_found#0} ;; *) break ;; esac; done
      if [ "$_rlship_found" -ge "$_rlship_least" ] && [ "$_rlship_found" -le "$_rlship_most" ]; then return 0; fi
    fi
    _rlship_say "$_rlship_word='$_rlship_found' is not an integer from $_rlship_least to $_rlship_most, so it is left out"
  done
  _rlship_found=
  return 1
}

# Rank and world come as a pair from one source: the first that gives a rank.
_rlship_place() {
  _rlship_variable 1 1048576 RLSHIP_WORLD || :
  _rlship_own=$_rlship_found
  if [ -z "$_rlship_rank" ] && _rlship_variable 0 1048575 RLSHIP_RANK; then _rlship_rank=$_rlship_found; fi
  if [ -z "$_rlship_rank" ]; then
    set -- RANK WORLD_SIZE RANK_ID RANK_SIZE JAX_PROCESS_ID JAX_NUM_PROCESSES JAX_PROCESS_INDEX JAX_PROCESS_COUNT \
      OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE PMI_RANK PMI_SIZE PMIX_RANK SLURM_STEP_NUM_TASKS \
      SLURM_PROCID SLURM_STEP_NUM_TASKS
    while [ "$#" -ge 2 ]; do
      if _rlship_variable 0 1048575 "$1"; then
        _rlship_rank=$_rlship_found
        if [ "$1" = SLURM_PROCID ]; then set -- "$1" "$2" SLURM_NTASKS; else set -- "$1" "$2"; fi
        shift
        if [ -z "$_rlship_world$_rlship_own" ] && _rlship_variable 1 1048576 "$@"; then _rlship_world=$_rlship_found; fi
        break
      fi
      shift 2
    done
  fi
  _rlship_rank=${_rlship_rank:-0} _rlship_world=${_rlship_world:-$_rlship_own}
  if [ -n "$_rlship_world" ] && [ "$_rlship_rank" -ge "$_rlship_world" ]; then
    _rlship_say "world $_rlship_world is not above rank $_rlship_rank, so it is left out"
    _rlship_world=
  fi
  [ -z "$_rlship_attempt" ] || return 0
  if _rlship_variable 0 9007199254740991 RLSHIP_ATTEMPT; then
    _rlship_attempt=$_rlship_found
    return 0
  fi
  # torchrun counts anew each time the batch system starts it again.
  _rlship_attempt=0
  if _rlship_variable 0 1048575 SLURM_RESTART_COUNT JOBSET_RESTART_ATTEMPT; then _rlship_attempt=$((_rlship_found * 1000)); fi
  if _rlship_variable 0 1048575 TORCHELASTIC_RESTART_COUNT; then _rlship_attempt=$((_rlship_attempt + _rlship_found)); fi
}

# At most 200 characters of a name, in _rlship_json.
_rlship_short() { # what name
  _rlship_string "$2"
  [ "$_rlship_length" -gt 200 ] || return 0
  _rlship_say "the $1 has $_rlship_length characters, of which the first 50 bytes are kept"
  _rlship_string "$(printf '%s' "$2" | LC_ALL=C cut -b 1-50)"
}

_rlship_open() {
  case ${RLSHIP_DISABLE-} in '' | 0) ;; *) return 0 ;; esac
  _rlship_dir= _rlship_folder= _rlship_actor= _rlship_rank= _rlship_world= _rlship_replica= _rlship_attempt= _rlship_axis= _rlship_parent=
  case ${1-} in
  rank=* | world=* | replica=* | attempt=* | axis=* | parent=*) ;;
  *)
    _rlship_folder=${1-}
    [ "$#" = 0 ] || shift
    case ${1-} in
    rank=* | world=* | replica=* | attempt=* | axis=* | parent=*) ;;
    *)
      _rlship_actor=${1-}
      [ "$#" = 0 ] || shift
      ;;
    esac
    ;;
  esac
  for _rlship_arg; do
    _rlship_rest=${_rlship_arg#*=}
    case $_rlship_arg in
    *=) ;; # not given
    rank=*) _rlship_variable 0 1048575 _rlship_rest && _rlship_rank=$_rlship_found || : ;;
    world=*) _rlship_variable 1 1048576 _rlship_rest && _rlship_world=$_rlship_found || : ;;
    attempt=*) _rlship_variable 0 9007199254740991 _rlship_rest && _rlship_attempt=$_rlship_found || : ;;
    replica=*) _rlship_replica=$_rlship_rest ;;
    axis=*) _rlship_axis=$_rlship_rest ;;
    parent=*) _rlship_string "$_rlship_rest" && _rlship_parent=$_rlship_json ;;
    *) _rlship_say "rlship_open does not know '$_rlship_arg'" ;;
    esac
  done
  _rlship_folder=${_rlship_folder:-${RLSHIP_DIR-}} _rlship_actor=${_rlship_actor:-${RLSHIP_ACTOR-}}
  if [ -z "$_rlship_folder" ] || [ -z "$_rlship_actor" ]; then
    _rlship_say "nothing is logged: no folder or no actor is given, nor are RLSHIP_DIR and RLSHIP_ACTOR set"
    return 0
  fi
  _rlship_replica=${_rlship_replica:-${RLSHIP_REPLICA:-0}}
  _rlship_promised=0 _rlship_logged=0 _rlship_under=0 _rlship_reached=
  _rlship_boot= _rlship_looked=0 _rlship_told=' ' _rlship_stepped=0 _rlship_unstepped=0 _rlship_first=0 _rlship_last=0
  _rlship_file= _rlship_id= _rlship_torn= _rlship_retry= _rlship_defined= _rlship_ran= _rlship_before= _rlship_network= _rlship_sync_at=0
  _rlship_place
  # Milliseconds: max(500, min(2 * world, 2000), world / 2).
  _rlship_every=$((${_rlship_world:-1} * 2))
  [ "$_rlship_every" -le 2000 ] || _rlship_every=2000
  [ "$_rlship_every" -ge 500 ] || _rlship_every=500
  [ "$_rlship_every" -ge "$((${_rlship_world:-1} / 2))" ] || _rlship_every=$((_rlship_world / 2))
  _rlship_host=
  if [ -r /proc/sys/kernel/hostname ]; then IFS=' ' read -r _rlship_host </proc/sys/kernel/hostname; fi
  _rlship_host=${_rlship_host:-$(uname -n)}
  _rlship_short actor "$_rlship_actor"
  _rlship_who=\"actor\":$_rlship_json
  _rlship_short replica "$_rlship_replica"
  _rlship_who="$_rlship_who,\"replica\":$_rlship_json,\"rank\":$_rlship_rank,\"attempt\":$_rlship_attempt"
  [ -z "$_rlship_world" ] || _rlship_who="$_rlship_who,\"world\":$_rlship_world"
  _rlship_short axis "${_rlship_axis:-global_step}"
  _rlship_who="$_rlship_who,\"axis\":$_rlship_json"
  _rlship_string "${_rlship_host:-unknown}"
  _rlship_who="$_rlship_who,\"host\":$_rlship_json,\"writer\":\"sh/1\""
  case $_rlship_folder in /*) ;; *) _rlship_folder=$PWD/$_rlship_folder ;; esac
  _rlship_dir=$_rlship_folder
  _rlship_self
  _rlship_owner=$_rlship_pid
  _rlship_put '' '' # the file is there from now on
}
