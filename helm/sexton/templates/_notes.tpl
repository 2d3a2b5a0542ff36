{{/* What to do next. A chart that has this one as a dependency shows it in its own notes. */}}
{{- define "sexton.notes" -}}
{{- $name := include "sexton.fullname" . -}}
{{- $n := printf "-n %s" .Release.Namespace -}}
{{- $sidecar := eq .Values.mode "sidecar" -}}
{{- $retries := false -}}{{- $alerts := false -}}
{{- if .Values.existingRulesConfigMap -}}
{{- $retries = true -}}{{- $alerts = true -}}
{{- else -}}
{{- range include "sexton.rulesFiles" . | fromYaml -}}
{{- $rules := fromYaml . -}}
{{- if $rules.retry }}{{ $retries = true }}{{ end -}}
{{- if $rules.alerts }}{{ $alerts = true }}{{ end -}}
{{- end -}}
{{- end -}}
{{- $scraped := or .Values.podMonitor.enabled .Values.serviceMonitor.enabled -}}
{{- $line := and .Values.prometheusRule.enabled (has "sexton-line" .Values.prometheusRule.groups) -}}
Sexton {{ .Chart.AppVersion }} watches:
{{- range .Values.config.sources }}
  {{ .name }}{{ with .smallage }}: smallage, namespace {{ default "lrs" .namespace }}{{ end }}
{{- end }}
{{ if $sidecar }}
It runs in the pods that carry the label sexton/sidecar={{ $name }}:

  kubectl {{ $n }} get pods -l sexton/sidecar={{ $name }}
  kubectl {{ $n }} exec POD -c sexton -- sexton stats
{{- else }}
Is it there, and what does it see?

  kubectl {{ $n }} rollout status deployment/{{ $name }}
  kubectl {{ $n }} exec deployment/{{ $name }} -- sexton stats
{{- end }}
{{- if .Values.test.enabled }}

Does it get on with Redis, its rights and your hooks?{{ if .Values.test.send }} Each hook is sent a hook.test.{{ end }}

  helm {{ $n }} test {{ .Release.Name }} --logs
{{- end }}
{{- if .Values.service.enabled }}

Metrics, and the API under /api/v1:

  kubectl {{ $n }} port-forward service/{{ $name }} {{ include "sexton.port" . }}
{{- end }}

What to do next:
{{- if not .Values.config.hooks }}
* No hooks: deaths are counted, and nobody is told. Give some in config.hooks.
{{- end }}
{{- if not $retries }}
* No retry rules: what dies stays in the DLQ. Rules to begin with: shippedRules=true
{{- end }}
{{- if not (or $alerts $line) }}
* No alerts: a rising line is seen by nobody. shippedRules=[50-alerts], or prometheusRule.enabled=true
{{- else if and $alerts $line .Values.config.hooks (not .Values.existingRulesConfigMap) }}
* Alert rules and the group sexton-line look at the same line: who hears of both is paged twice. Leave one out: the
  rules, or prometheusRule.groups=[sexton-health]
{{- end }}
{{- if not $scraped }}
* Nothing scrapes the metrics that this chart knows of: podMonitor.enabled=true, or let your Prometheus look at port
  {{ include "sexton.port" . }} of the pods.
{{- end }}
{{- if and $scraped (not .Values.prometheusRule.enabled) }}
* Nobody watches Sexton itself: prometheusRule.enabled=true
{{- end }}
{{- if not (or .Values.config.http.token .Values.config.http.token_file .Values.config.http.tokens) }}
* No token: the API only reads. To change something from there: config.http.token_file
{{- end }}
{{- if not $sidecar }}
{{- if lt (int .Values.replicas) 2 }}
* One replica: while it is moved or restarted nobody acts. Two hand over within seconds.
{{- end }}
{{- if not .Values.networkPolicy.enabled }}
* Everybody in the cluster may read error texts on port {{ include "sexton.port" . }}: networkPolicy.enabled=true
{{- else }}
{{- include "sexton.closedPorts" . }}
{{- end }}
{{- end }}
{{- if not (or .Values.image.registry (contains "/" .Values.image.repository)) }}
* The image is {{ include "sexton.image" . }}, from no registry of yours: give image.registry, unless the nodes have it.
{{- end }}
* Rules may be changed at any time with `helm upgrade`: nothing restarts, and within a minute or so they are in force.
{{- end }}

{{/*
The ports that URLs of the configuration need and that the policy lets nothing out to, a line for each kind. URLs in files
and variables are not known here, nor the ports of servers that Sentinels name.
*/}}
{{- define "sexton.closedPorts" -}}
{{- $egress := .Values.networkPolicy.egress -}}
{{- $urls := dict "redis" list "hooks" list -}}
{{- range .Values.config.sources -}}
{{- with (default dict .smallage).url }}{{ $_ := set $urls "redis" (append $urls.redis .) }}{{ end -}}
{{- end -}}
{{- range .Values.config.hooks -}}
{{- $url := .url -}}
{{- if and (not $url) (has .format (list "pagerduty" "slack")) }}{{ $url = "https://their.own" }}{{ end -}}
{{- with $url }}{{ $_ := set $urls "hooks" (append $urls.hooks .) }}{{ end -}}
{{- end -}}
{{- range $kind := list "redis" "hooks" -}}
{{- $closed := list -}}
{{- range $url := get $urls $kind -}}
{{- range $port := include "sexton.portsOf" (toString $url) | splitList "," -}}
{{- if and $port (not (include "sexton.isLetOut" (dict "egress" $egress "kind" $kind "port" (int $port)))) -}}
{{- $closed = append $closed $port -}}
{{- end -}}
{{- end -}}
{{- end }}
{{- with $closed | uniq }}
* The network policy lets nothing out to {{ ternary "port" "ports" (eq (len .) 1) }} {{ join ", " . }}, which {{ ternary "a source" "a hook" (eq $kind "redis") }} needs:
  networkPolicy.egress.{{ $kind }}.ports
{{- end }}
{{- end }}
{{- end }}

{{/* The ports of a URL's servers, with commas: those it says, and those that its scheme means otherwise. */}}
{{- define "sexton.portsOf" -}}
{{- $scheme := regexFind "^[a-z+]+://" . -}}
{{- $usual := get (dict "http://" "80" "https://" "443" "redis://" "6379" "rediss://" "6379") $scheme -}}
{{- if contains "+sentinel" $scheme }}{{ $usual = "26379" }}{{ else if contains "+cluster" $scheme }}{{ $usual = "6379" }}{{ end -}}
{{- $ports := list -}}
{{- if $usual -}}
{{- $servers := regexReplaceAll "[/?#].*$" (trimPrefix $scheme .) "" | regexFind "[^@]*$" -}}
{{- range splitList "," $servers -}}
{{- $port := regexFind ":[0-9]+$" . | trimPrefix ":" -}}
{{- if $port }}{{ $ports = append $ports $port }}{{ else if not (contains "${" .) }}{{ $ports = append $ports $usual }}{{ end -}}
{{- end -}}
{{- end -}}
{{ join "," $ports }}
{{- end }}

{{/* Not empty where the policy lets out to this port: for its kind, for anywhere, or by a rule of one's own. */}}
{{- define "sexton.isLetOut" -}}
{{- $port := .port -}}
{{- range $kind := list "dns" "redis" "hooks" -}}
{{- $rule := get $.egress $kind -}}
{{- if or (eq $kind $.kind) (not $rule.to) -}}
{{- range $rule.ports }}{{ if eq (int .) $port }}yes{{ end }}{{ end -}}
{{- end -}}
{{- end -}}
{{- range .egress.extra -}}
{{- range default (list dict) .ports -}}
{{- $from := .port -}}
{{- /* Without a port it is every one; which one a name means is not known here. */ -}}
{{- if or (not $from) (kindIs "string" $from) }}yes{{ else if and (le (int $from) $port) (ge (int (default $from .endPort)) $port) }}yes{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}
