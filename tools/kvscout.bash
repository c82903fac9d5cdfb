# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Completion of the command kvscout for bash. Options come from the command's own --help, so they are never out of date.

_kvscout() {
	local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}

	COMPREPLY=()
	if [ "$COMP_CWORD" -eq 1 ]; then
		mapfile -t COMPREPLY < <(compgen -W "server status top web ping lookup clear peers verify latency replay copy --help --version" -- "$word")
		return
	fi
	case $before in
	--*file | --trace | --json | --config)
		[ "${word#-}" = "$word" ] && mapfile -t COMPREPLY < <(compgen -f -- "$word") && return
		;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$("${COMP_WORDS[0]}" "${COMP_WORDS[1]}" --help 2>/dev/null |
		sed -n 's/^  \(--[a-z0-9_-]*\).*/\1/p')" -- "$word")
}
complete -o default -F _kvscout kvscout
