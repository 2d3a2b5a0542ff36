{{/* sexton.yaml and the rules files, as they are in the ConfigMaps and so in the pods. */}}

{{/* The configuration as it is given, and where the rules are. */}}
{{- define "sexton.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $_ := set $config "rules" (list "/etc/sexton/rules") -}}
{{- $text := toYaml $config -}}
{{- include "sexton.findsItsSecrets" (dict "root" . "text" $text) -}}
{{ $text }}
{{- end }}

{{/*
Fails where the configuration names a file of a Secret that the pods will not have, or a variable: Sexton would only say
so in a pod that does not get ready. What is mounted by hand may hold anything.
*/}}
{{- define "sexton.findsItsSecrets" -}}
{{- $values := .root.Values -}}
{{- $named := dict -}}
{{- range $values.secrets }}{{ $_ := set $named .name . }}{{ end -}}
{{- range $path := regexFindAll "/run/secrets/sexton/[^\\s\"',]+" .text -1 | uniq -}}
{{- $mounted := false -}}
{{- range $values.extraVolumeMounts -}}
{{- if hasPrefix (printf "%s/" (trimSuffix "/" .mountPath)) (printf "%s/" $path) }}{{ $mounted = true }}{{ end -}}
{{- end -}}
{{- if not $mounted -}}
{{- $parts := splitn "/" 2 (trimPrefix "/run/secrets/sexton/" $path) -}}
{{- $secret := get $named $parts._0 -}}
{{- if not $secret -}}
{{- fail (printf "config: %s is a key of the Secret %s, which the pods do not have: give secrets: [{ name: %s }]; the key K of the Secret S is /run/secrets/sexton/S/K" $path $parts._0 $parts._0) -}}
{{- else if not $parts._1 -}}
{{- fail (printf "config: %s is all of that Secret: name one of its keys, %s/KEY" $path $path) -}}
{{- else if $secret.items -}}
{{- $paths := list -}}
{{- range $secret.items }}{{ $paths = append $paths .path }}{{ end -}}
{{- if not (has $parts._1 $paths) -}}
{{- fail (printf "config: %s is not among the items of secrets, name: %s, which has: %s" $path $parts._0 (join ", " $paths)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $known := list -}}
{{- range $values.env }}{{ $known = append $known .name }}{{ end -}}
{{- range $variable := regexFindAll "[$][{][A-Za-z_][A-Za-z0-9_]*[}]" (replace "$$" "" .text) -1 | uniq -}}
{{- $name := trimPrefix "${" $variable | trimSuffix "}" -}}
{{- /* Some are there in every pod. */ -}}
{{- if not (or (has $name $known) (regexMatch "^(HOSTNAME|PATH|KUBERNETES_.*)$" $name)) -}}
{{- fail (printf "config: %s is a variable that the pods do not have: give it under env, a secret by valueFrom.secretKeyRef" $variable) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "sexton.port" -}}
{{ regexFind "[0-9]+$" .Values.config.http.listen }}
{{- end }}

{{/*
The rules files as a YAML map of their texts by name: the shipped ones that are wanted, and those of the values over
them. Never empty: a folder without rules is taken for a mistake, and one with `retry: []` can be given rules later
without a restart.
*/}}
{{- define "sexton.rulesFiles" -}}
{{- $shipped := dict -}}
{{- range $path, $_ := .Files.Glob "rules/*.yaml" -}}
{{- $_ := set $shipped (base $path | trimSuffix ".yaml") ($.Files.Get $path) -}}
{{- end -}}
{{- $wanted := .Values.shippedRules -}}
{{- if kindIs "bool" $wanted -}}
{{- $wanted = ternary (keys $shipped) list $wanted -}}
{{- end -}}
{{- $files := dict -}}
{{- range $name := $wanted -}}
{{- $name = trimSuffix ".yaml" $name -}}
{{- if not (hasKey $shipped $name) -}}
{{- $known := keys $shipped | sortAlpha | join ", " -}}
{{- fail (printf "shippedRules: there are no shipped rules called %q; there are: %s" $name $known) -}}
{{- end -}}
{{- $_ := set $files (printf "%s.yaml" $name) (get $shipped $name) -}}
{{- end -}}
{{- range $name, $rules := .Values.rules -}}
{{- if not (kindIs "invalid" $rules) -}}
{{- $_ := set $files $name (ternary $rules (toYaml $rules) (kindIs "string" $rules)) -}}
{{- end -}}
{{- end -}}
{{- if not $files -}}
{{- $_ := set $files "none.yaml" "retry: []\n" -}}
{{- end -}}
{{- range $name, $text := $files -}}
{{- with get (fromYaml $text) "Error" -}}
{{- fail (printf "rules: %s is not YAML: %s" $name .) -}}
{{- end -}}
{{- end -}}
{{ toYaml $files }}
{{- end }}
