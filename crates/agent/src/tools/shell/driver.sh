# The shell itself: evaluates each command in this one process, so that what it sets lasts. A command
# does not get descriptors 3 and 4: bash closes them for it and puts them back afterwards. Whatever it
# did to its standard streams is undone in the same way.
__ww_run() { eval "$1"; }
__ww_back() {
  printf 'job %s' "$1" >&4
  ( __ww_run "$2" ) 3<&- 4>&- __CLOSE__
  printf 'over %s %s' "$1" "$?" >&4
}
printf 'hello' >&4
while IFS= read -r -d '' -u 3 __ww_verb && IFS= read -r -d '' -u 3 __ww_mark &&
  IFS= read -r -d '' -u 3 __ww_slot && IFS= read -r -d '' -u 3 __ww_text; do
  # How a command that ran into its timeout is left: bash runs this as soon as what it waits for ends.
  trap 'return 124 2>/dev/null' USR1
  case $__ww_verb in
    run)
      __ww_run "$__ww_text" </dev/null 1>&2 2>&1 3<&- 4>&- __CLOSE__
      # In a group, so that a command's `set -x` does not show this.
      { printf 'end %s %s' "$__ww_mark" "$?" >&4; } 2>/dev/null
      ;;
    back)
      __ww_back "$__ww_mark" "$__ww_text" </dev/null >&"$__ww_slot" 2>&1 &
      printf 'end %s 0' "$__ww_mark" >&4
      ;;
  esac
  { set +efuvxn; } 2>/dev/null
done
