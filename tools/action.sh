#!/usr/bin/env bash
# What the GitHub Action (action.yml) does: install harness, find out whether sandboxes work here,
# relax what it was told to relax and nothing else, run, and say where the reports are.
#
# Inputs come as ACTION_… variables (see `settings`); lists have one entry a line. Exit codes are
# those of harness. What was relaxed is put back before the end, also after a signal.
set -euo pipefail

readonly USAGE=2 UNFIT=4
root="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)"
readonly root
# The shortest scenario that starts real sandboxes, with and without a pid namespace.
readonly PROBE="$root/scenarios/exit-and-signals.yaml::exit-status.codes-pass-through"
readonly TUN=/dev/net/tun

# --- telling -------------------------------------------------------------------------------------

# A workflow command is one line; the runner decodes these three (ActionCommand.cs in actions/runner).
annotate() { # KIND TEXT
    local text="${2//'%'/%25}"
    text="${text//$'\r'/%0D}"
    printf '::%s title=harness::%s\n' "$1" "${text//$'\n'/%0A}"
}

output() { # NAME VALUE
    [ -z "${GITHUB_OUTPUT:-}" ] || printf '%s=%s\n' "$1" "$2" >>"$GITHUB_OUTPUT"
}

# Nothing was run: say why in the log, on the page of the run and in its summary.
stop() { # CODE TEXT
    printf '::endgroup::\n' # an error must not be folded away with what led to it
    annotate error "$2"
    output exit-code "$1"
    if [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then
        {
            printf '## bwrap supervision conformance\n\n**Nothing ran.**\n\n'
            # Indented it is code, whatever it contains.
            printf '%s\n' "$2" | sed 's/^/    /'
        } >>"$GITHUB_STEP_SUMMARY"
    fi
    exit "$1"
}

group() { # TITLE COMMAND…: the command's exit code, its output folded away in the log
    local code=0 title="$1"
    shift
    printf '::group::%s\n' "$title"
    "$@" || code=$?
    printf '::endgroup::\n'
    return "$code"
}

# --- inputs --------------------------------------------------------------------------------------

boolean() { # NAME VALUE
    case "$2" in
    true | false) ;;
    *) stop "$USAGE" "input $1: expected true or false, got '$2'" ;;
    esac
}

one_line() { # NAME VALUE: it ends up in $GITHUB_OUTPUT, where a second line would be another output
    case "$2" in
    *$'\n'* | *$'\r'*) stop "$USAGE" "input $1: expected one line, got several" ;;
    esac
}

entries() { # ARRAY TEXT: the lines that are not empty, as they stand
    local -n into="$1"
    local line
    into=()
    while IFS= read -r line; do
        [ -z "$line" ] || into+=("$line")
    done <<<"$2"
}

settings() {
    must_work="${ACTION_MUST_WORK:-true}"
    relax_userns="${ACTION_RELAX_USERNS:-false}"
    open_tun="${ACTION_OPEN_TUN:-false}"
    as_root="${ACTION_AS_ROOT:-false}"
    system_packages="${ACTION_SYSTEM_PACKAGES:-true}"
    boolean must-work "$must_work"
    boolean relax-userns "$relax_userns"
    boolean open-tun "$open_tun"
    boolean as-root "$as_root"
    boolean system-packages "$system_packages"

    reports="${ACTION_REPORTS:-reports}"
    junit="${ACTION_JUNIT:-}"
    python="${ACTION_PYTHON:-python3}"
    temporary="${RUNNER_TEMP:-${TMPDIR:-/tmp}}"
    # Two checkouts of harness in one job are two versions of it.
    venv="${ACTION_VENV:-$temporary/harness-$(printf %s "$root" | cksum | cut -d' ' -f1)}"
    one_line reports "$reports"
    one_line junit "$junit"
    one_line python "$python"
    one_line venv "$venv"
    # For tests: this kernel may not have the file, and nobody wants theirs changed by a test.
    userns_knob="${ACTION_USERNS_KNOB:-/proc/sys/kernel/apparmor_restrict_unprivileged_userns}"

    user_options=()
    [ -z "${ACTION_USER:-}" ] || user_options=(--user "$ACTION_USER")
    local arg subject subjects=()
    paths=() args=()
    entries paths "${ACTION_PATHS:-$root/scenarios}"
    entries subjects "${ACTION_SUBJECTS:-}"
    entries args "${ACTION_ARGS:-}"
    subject_options=()
    for subject in "${subjects[@]}"; do
        subject_options+=(--subject "$subject")
    done
    for arg in "${args[@]}"; do
        # "-k lock" as one argument is a search for " lock", which finds nothing.
        if [[ "$arg" =~ ^--?[A-Za-z][A-Za-z-]*[[:blank:]] ]]; then
            stop "$USAGE" "input args: '$arg' is one argument; write an option and its value on two lines"
        fi
    done
}

# --- permission ----------------------------------------------------------------------------------

privileged() { # COMMAND…
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

# `harness` is the command with which harness is started. Under sudo its supervisors still run as
# the caller, unprivileged; only scenarios with `user: root` use the right.
choose_command() {
    local name
    harness=("$venv/bin/harness")
    [ "$as_root" = true ] && [ "$(id -u)" -ne 0 ] || return 0
    sudo -n true 2>/dev/null ||
        stop "$UNFIT" "as-root is true, but sudo is missing or asks for a password: leave as-root out, or let the runner's user use sudo"
    harness=(sudo -n env)
    # sudo clears the environment.
    for name in PATH HARNESS_MUST_WORK GITHUB_STEP_SUMMARY NO_COLOR FORCE_COLOR DOCKER_HOST \
        DOCKER_TLS_VERIFY DOCKER_CERT_PATH; do
        [ -z "${!name+set}" ] || harness+=("$name=${!name}")
    done
    harness+=("$venv/bin/harness")
}

# --- what is left must be as it was --------------------------------------------------------------

work='' old_knob='' old_tun_mode=''

put_back() {
    # Every line is tried: one that fails must not keep the next from being put back.
    set +e
    [ -z "$old_knob" ] || write_knob "$old_knob"
    [ -z "$old_tun_mode" ] || privileged chmod "$old_tun_mode" "$TUN"
    # harness under sudo leaves files of root's in it.
    [ -z "$work" ] || rm -rf -- "$work" 2>/dev/null || privileged rm -rf -- "$work"
}

# --- installing ----------------------------------------------------------------------------------

install_harness() {
    if [ -x "$venv/bin/harness" ]; then # pip writes it last: it is whole
        echo "harness is in $venv already"
        return
    fi
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        stop "$USAGE" "harness needs Python 3.11 or newer, and $python is not: name another with the input python, or put actions/setup-python before this action"
    "$python" -m venv "$venv" ||
        stop "$UNFIT" "$python cannot make a virtual environment in $venv: install python3-venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$root" ||
        stop "$UNFIT" "pip could not install harness and its dependencies; the log says why"
}

# --- probing and relaxing ------------------------------------------------------------------------

write_knob() { # VALUE
    printf '%s\n' "$1" | privileged tee -- "$userns_knob" >/dev/null
}

restricted() { # whether AppArmor takes the rights of unprivileged user namespaces away
    [ -r "$userns_knob" ] && [ "$(cat -- "$userns_knob")" != 0 ]
}

# The facts of doctor are about what any program may do. A subject may do more (an AppArmor profile
# of its own) or sit elsewhere (in a container), so that it has to make a sandbox itself.
try_subjects() { # its exit code is harness's; what was said is in $work/probe
    "${harness[@]}" run "$PROBE" --require-env --quiet --color never --reports "$work/reports" \
        "${subject_options[@]}" "${user_options[@]}" >"$work/probe" 2>&1
}

complaint() {
    sed -n 's/^harness: //p' "$work/probe" | grep . || cat "$work/probe"
}

relax() {
    restricted || return 0
    if [ "$relax_userns" = false ]; then
        hint=". AppArmor restricts unprivileged user namespaces here ($userns_knob is $(cat -- "$userns_knob")), and bwrap is useless then, unless it has a profile of its own. Nothing was changed: give this action relax-userns: true to let it write 0 there while harness runs."
        return
    fi
    local was
    was="$(cat -- "$userns_knob")"
    if write_knob 0; then
        old_knob="$was"
        annotate notice "relax-userns: $userns_knob was $was, and is 0 while harness runs"
    else
        hint=". relax-userns is true, but $userns_knob cannot be written: the runner's user needs sudo without a password, or the container must be privileged."
    fi
}

probe() {
    local code=0 hint=''
    group "harness doctor" "${harness[@]}" doctor --color never "${user_options[@]}" || true
    try_subjects || code=$?
    if [ "$code" -eq "$UNFIT" ]; then
        relax
        if [ -n "$old_knob" ]; then
            code=0
            try_subjects || code=$?
        fi
    fi
    case "$code" in
    "$USAGE") stop "$code" "$(complaint)" ;;
    "$UNFIT")
        [ "$must_work" = false ] || stop "$code" "$(complaint)$hint"
        annotate warning "must-work is false, and sandboxes do not work: $(complaint)$hint"
        ;;
    *) ;; # sandboxes can be made; whether they are right is for the run to say
    esac
}

tun_problem() { # nothing when the device can be used
    "${harness[@]}" doctor --format json "${user_options[@]}" >"$work/facts" || true
    "$venv/bin/python" - "$work/facts" <<'PYTHON'
import json, sys

for fact in json.load(open(sys.argv[1], encoding="utf-8"))["facts"]:
    if fact["name"] == "tun" and not fact["ok"]:
        print(f"{fact['detail']}: {fact['remedy']}")
PYTHON
}

look_at_tun() {
    local mode problem
    problem="$(tun_problem)"
    [ -n "$problem" ] || return 0
    if [ "$open_tun" = true ] && [ -e "$TUN" ]; then
        mode="$(stat -c %a "$TUN")"
        if privileged chmod 0666 "$TUN"; then
            old_tun_mode="$mode"
            annotate notice "open-tun: $TUN had mode $mode, and has 666 while harness runs"
            problem="$(tun_problem)"
        fi
    fi
    # Not every selection needs it, and the cases that do will say so themselves.
    [ -z "$problem" ] || annotate notice "no scenario can use a network provider: $problem"
}

# --- running -------------------------------------------------------------------------------------

run() {
    local code=0 file before after signalled
    before="$(readlink -f -- "$reports/latest" || true)"
    if [ -n "$junit" ]; then
        rm -f -- "$junit" # one of an earlier run must not be published as this one's
        args+=(--junit "$junit")
    fi
    # The runner signals this shell alone, which would only wait for a child in the foreground.
    # harness, told to stop, still writes its reports.
    "${harness[@]}" run "${paths[@]}" "${subject_options[@]}" "${user_options[@]}" "${args[@]}" \
        --reports "$reports" --github </dev/null &
    child=$!
    trap 'signalled=yes; privileged kill -TERM "$child" 2>/dev/null || true' INT TERM HUP
    signalled=yes
    while [ -n "$signalled" ]; do # a signal ends the wait, not the child
        signalled='' code=0
        wait "$child" || code=$?
    done
    trap 'exit 130' INT TERM HUP

    output exit-code "$code"
    after="$(readlink -f -- "$reports/latest" || true)"
    if [ "${harness[0]}" = sudo ] && [ -d "$reports" ]; then
        privileged chown -Rh -- "$(id -u):$(id -g)" "$reports"
        [ ! -e "$junit" ] || privileged chown -h -- "$(id -u):$(id -g)" "$junit"
    fi
    if [ "$after" != "$before" ] && [ -d "$after" ]; then
        output run "$after"
        [ ! -f "$after/report.html" ] || output html "$after/report.html"
        for file in "${junit:-/nonexistent}" "$after/junit.xml"; do
            if [ -f "$file" ]; then
                output junit "$(readlink -f -- "$file")"
                break
            fi
        done
    fi
    return "$code"
}

main() {
    settings
    export HARNESS_MUST_WORK=0
    [ "$must_work" = false ] || HARNESS_MUST_WORK=1
    work="$(mktemp -d "$temporary/harness-work-XXXXXX")"
    trap put_back EXIT
    # After what is in the foreground; without a trap, bash forgets an interrupt that its child
    # survives, and the runner's interrupt reaches this shell alone.
    trap 'exit 130' INT TERM HUP
    group "install harness" install_harness
    [ "$system_packages" = false ] || sh "$root/tools/install-system.sh"
    choose_command
    probe
    look_at_tun
    run
}

main
