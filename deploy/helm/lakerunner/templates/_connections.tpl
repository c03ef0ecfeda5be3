{{/* What files/connections.yaml says, for one role. */}}

{{- define "lakerunner.connections" -}}
{{ .Files.Get "files/connections.yaml" }}
{{- end -}}

{{/* What a role calls, as JSON: (root, role). A role of one signal calls what its stage calls. */}}
{{- define "lakerunner.calls" -}}
{{- $calls := (include "lakerunner.connections" (index . 0) | fromYaml).calls -}}
{{- $stage := index . 1 | trimSuffix "-logs" | trimSuffix "-metrics" | trimSuffix "-traces" -}}
{{- if not (hasKey $calls $stage) }}{{ fail (printf "roles.%s: there is no such role" (index . 1)) }}{{ end -}}
{{- dict "calls" (index $calls $stage) | toJson -}}
{{- end -}}

{{/* The settings that a role may know of those that are secret, as JSON: (root, role). */}}
{{- define "lakerunner.secrets" -}}
{{- $root := index . 0 }}{{ $role := index . 1 -}}
{{- $known := include "lakerunner.connections" $root | fromYaml -}}
{{- $calls := (include "lakerunner.calls" . | fromJson).calls -}}
{{- $settings := list -}}
{{- range $peer, $about := merge (dict) $known.peers $known.services -}}
{{- if or (has $peer $calls) (eq $peer $role) -}}
{{- range $about.secrets }}{{ $settings = append $settings . }}{{ end -}}
{{- end -}}
{{- end -}}
{{- dict "settings" $settings | toJson -}}
{{- end -}}

{{/* The roles that are on, as JSON: name -> values, with the defaults. */}}
{{- define "lakerunner.roles" -}}
{{- $roles := dict -}}
{{- if not .Values.allInOne.enabled -}}
{{- $defaults := .Values.defaults -}}
{{- range $name, $role := .Values.roles -}}
{{- $role = mergeOverwrite (deepCopy $defaults) (dict "kind" "Deployment" "enabled" true) (deepCopy ($role | default dict)) -}}
{{- if $role.enabled }}{{ $_ := set $roles $name $role }}{{ end -}}
{{- end -}}
{{- end -}}
{{- $roles | toJson -}}
{{- end -}}

{{/* How many pods of a role there are at least. */}}
{{- define "lakerunner.least" -}}
{{- $root := index . 0 }}{{ $role := index . 1 -}}
{{- if and $role.autoscaling (ne $root.Values.autoscaling.by "off") }}{{ $role.autoscaling.min }}{{ else }}{{ $role.replicas }}{{ end -}}
{{- end -}}
