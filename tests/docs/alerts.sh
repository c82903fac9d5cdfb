#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# alerts.sh FOLDER BIN: promtool takes the alert rules in FOLDER, each alert fires on what it is for, and promtool takes each expression
# of the dashboard. `./dev test` puts a promtool into the folder BIN if there is no other. TAP.
set -eu
cd "$1"; PATH=$PATH:$2
command -v promtool >/dev/null || { echo "1..0 # SKIP promtool is not installed (Debian and Ubuntu: the package prometheus)"; exit; }
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
n=0
bad=0
case_of() # NAME COMMAND...
{
	n=$((n + 1))
	name=$1
	shift
	if "$@" >"$tmp/out" 2>&1; then
		echo "ok $n - $name"
	else
		bad=1
		echo "not ok $n - $name"
		sed 's/^/# /' "$tmp/out"
	fi
}
{
	printf 'groups:\n  - name: dashboard\n    rules:\n'
	# A string of JSON is a string of YAML.
	sed -n 's/^ *"expr": \(".*"\),$/      - {record: panel, expr: \1}/p' dashboard.json |
		sed 's/\$__rate_interval/5m/g; s/\$instance/.*/g' | sort -u
} >"$tmp/dashboard.yml"
case_of "the dashboard has expressions" grep -q record "$tmp/dashboard.yml"
case_of "promtool takes the dashboard's expressions" promtool check rules --lint=none "$tmp/dashboard.yml"
case_of "promtool takes the alerts" promtool check rules alerts.yml
case_of "each alert fires on what it is for, and on nothing else" promtool test rules alerts_test.yml
echo "1..$n"
exit $bad
