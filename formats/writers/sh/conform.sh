# The conformance driver of the shell writer: reads commands from standard input, see tests/writers/commands.py.
set -eu
. "${0%/*}/rlship.sh"

tab=$(printf '\t')

# Undo the escapes of a field, in $plain.
unescape() {
  plain= rest=$1
  while :; do
    plain=$plain${rest%%\\*}
    case $rest in *\\*) rest=${rest#*\\} ;; *) break ;; esac
    case $rest in
    x*)
      rest=${rest#x}
      code=${rest%"${rest#??}"} rest=${rest#??}
      byte=$(printf "\\$(printf '%03o' "0x$code")x")
      plain=$plain${byte%x}
      ;;
    *)
      byte=$(printf "\\${rest%"${rest#?}"}x")
      plain=$plain${byte%x} rest=${rest#?}
      ;;
    esac
  done
}

# rlship_event and others take KEY=TEXT and KEY:=JSON where the commands have pairs.
pairs() {
  count=$#
  while [ "$count" -ge 2 ]; do
    case $2 in s:*) set -- "$@" "$1=${2#s:}" ;; b:1) set -- "$@" "$1:=true" ;; b:0) set -- "$@" "$1:=false" ;; *) set -- "$@" "$1:=${2#?:}" ;; esac
    shift 2
    count=$((count - 2))
  done
  if [ -n "$call" ]; then "$call" "$step" "$name" ${score+"$score"} "$@"; else "$name" "$@"; fi
}

obey() {
  command=$1
  shift
  case $command in
  init) rlship_open "$1" "$2" "rank=$3" "world=$4" "replica=$5" "attempt=$6" "axis=$7" "parent=${8-}" ;;
  define) rlship_define "$1" "reduce=$2" "unit=$3" "per_rank=$4" "stream=$5" ;;
  log)
    step=$1 weight=$2
    shift 2
    if [ -n "$weight" ]; then rlship_log_weighted "$step" "$weight" "$@"; else rlship_log "$step" "$@"; fi
    ;;
  list) rlship_log_list "$1" "$2" "${3-}" "${4-}" ;;
  span) rlship_span "$@" ;;
  event)
    call=rlship_event step=$1 name=$2
    unset score
    shift 2
    pairs "$@"
    ;;
  sample)
    call=rlship_sample step=$1 name=$2 score=$3
    shift 3
    pairs "$@"
    ;;
  run)
    call=
    case $1 in members) name=rlship_run_data ;; *) name=rlship_$1 ;; esac
    shift
    pairs "$@"
    ;;
  ledger)
    step=$2 name=$3 key=$4
    shift 4
    count=$#
    while [ "$count" -ge 2 ]; do
      set -- "$@" "$1=$2"
      shift 2
      count=$((count - 2))
    done
    rlship_ledger "$step" "$name" "$key" "$@"
    ;;
  weights) rlship_weights "$2" "$6" "${8-}" ;;
  barrier | rollback | flush | close) "rlship_$command" "$@" ;;
  sleep) sleep "$(($1 / 1000)).$(printf %03d $(($1 % 1000)))" ;;
  burst)
    i=0
    while [ "$i" -lt "$1" ]; do
      rlship_log "$i" x "$i"
      rlship_barrier "$i"
      i=$((i + 1))
    done
    ;;
  fork) (rlship_log "$1" x "$2" && rlship_close) ;;
  exit) exit 0 ;;
  abort) kill -9 $$ ;;
  esac
}

# One line of commands as fields. The patterns take a time that grows with the square of its length.
while IFS= read -r line; do
  set --
  if [ "${#line}" -gt 20000 ]; then
    while IFS= read -r field; do set -- "$@" "$field"; done <<EOF
$(printf '%s' "$line" | tr '\t' '\n')
EOF
    line=
  fi
  while [ -n "$line" ]; do
    field=${line%%"$tab"*}
    case $field in *\\*) unescape "$field" && field=$plain ;; esac
    set -- "$@" "$field"
    case $line in *"$tab") line=${line#*"$tab"} && [ -n "$line" ] || set -- "$@" '' ;; *"$tab"*) line=${line#*"$tab"} ;; *) line= ;; esac
  done
  obey "$@"
done
